"""One module a page, each with one function ``page`` that draws it.

Not called ``pages``: next to app.py, Streamlit would take a folder of that name for scripts to run.
"""
