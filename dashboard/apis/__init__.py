"""One module an API: how its request is made from what was asked, and how its answer is read.

``table.py`` lists them; the page, the client and the copied code know no other difference between
them.
"""
