"""Comparing, sorting, counting, the calendar, units."""

from typing import Final

from pocket.judges import (
    begins,
    begins_with_number,
    ends_with_number,
    just_numbers,
    says,
    says_one_of,
)
from pocket.visitors.visit import Visit, visit

COMPARES: Final[tuple[Visit, ...]] = (
    visit("would 12 be more than 7", rule=begins("yes")),
    visit("31 - is that less than 13?", rule=begins("no")),
    visit("bigger: 45 or 54?", rule=begins_with_number(54)),
    visit("pick the larger number, 8 or 3", rule=begins_with_number(8)),
    visit("between 17 and 71 which one is smaller", rule=begins_with_number(17)),
    visit("Would you say 90 is greater than 19?", rule=begins("yes")),
    visit("so is 5 bigger than 50 or not", rule=begins("no")),
    visit("are 6 and 9 equal?", rule=begins("no")),
    visit("what's more, 100 or 99?", rule=begins_with_number(100)),
    visit("tell me the biggest of 4, 19 and 11", rule=begins_with_number(19)),
    visit("out of 62, 26 and 44 which is the lowest?", rule=begins_with_number(26)),
    visit("does 8 exceed 80?", rule=begins("no")),
    visit("I have 23 apples, you have 32. who has more?", rule=says_one_of("you", "I do", "32")),
    visit("is it true that 73 is smaller than 75", rule=begins("yes")),
    visit("12 vs 21, which number is higher", rule=begins_with_number(21)),
    visit("max of 3 14 9?", rule=begins_with_number(14)),
    visit("min of 30 5 18?", rule=begins_with_number(5)),
)  # fmt: skip

SORTS: Final[tuple[Visit, ...]] = (
    visit("sort me 5 2 9", rule=just_numbers(2, 5, 9)),
    visit("put these in order: 14, 3, 8", rule=just_numbers(3, 8, 14)),
    visit("I have 40, 10, 30 and 20. Order them for me.", rule=just_numbers(10, 20, 30, 40)),
    visit("arrange 7 1 4 from big to small", rule=just_numbers(7, 4, 1)),
    visit("small to large please: 66 12 39", rule=just_numbers(12, 39, 66)),
    visit("What do 9, 6, 3, 1 look like when sorted?", rule=just_numbers(1, 3, 6, 9)),
    visit("descending please, 21, 84, 5", rule=just_numbers(84, 21, 5)),
    visit("line up 50, 5, 55 by size", rule=just_numbers(5, 50, 55)),
    visit("order these numbers, biggest one first: 2, 13, 7", rule=just_numbers(13, 7, 2)),
    visit("could you sort this list? 8, 3, 5, 1", rule=just_numbers(1, 3, 5, 8)),
    visit("sorted([9, 4, 7])", rule=just_numbers(4, 7, 9)),
    visit("ascending: 31 13 22", rule=just_numbers(13, 22, 31)),
    visit("my numbers are 6 and 2 and 4, please bring them in order", rule=just_numbers(2, 4, 6)),
    visit("srot 12, 11, 10", rule=just_numbers(10, 11, 12)),
    visit("rank 17, 70, 7 from lowest to highest", rule=just_numbers(7, 17, 70)),
    visit("reverse order please, 3 6 9", rule=just_numbers(9, 6, 3)),
    visit("these need sorting: 100, 20, 3", rule=just_numbers(3, 20, 100)),
)  # fmt: skip

CALENDAR: Final[tuple[Visit, ...]] = (
    visit("if today is tuesday, what's tomorrow?", rule=says("Wednesday")),
    visit("what day is the day after friday", rule=says("Saturday", never=("Sunday",))),
    visit("and which day would come right before Monday", rule=says("Sunday")),
    visit("yesterday was Thursday so today is...", rule=says("Friday")),
    visit("recite the days of a week",
       rule=says("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")),
    visit("what are all twelve months?",
       rule=says("January", "April", "July", "October", "November", "December")),
    visit("the month following march?", rule=says("April")),
    visit("which month do you get before January?", rule=says("December")),
    visit("what is the 3rd month called", rule=says("March")),
    visit("last month of the year is?", rule=says("December")),
    visit("First day of the working week?", rule=says("Monday")),
    visit("how many days are there in april?", rule=ends_with_number(30)),
    visit("days in December", rule=ends_with_number(31)),
    visit("tomorrow is sunday. what is today?", rule=says("Saturday")),
    visit("is June before or after July", rule=says("before")),
    visit("wich day folows wednsday", rule=says("Thursday")),
    visit("what number month is May?", rule=ends_with_number(5)),
)  # fmt: skip

COUNTS: Final[tuple[Visit, ...]] = (
    visit("can you do 1 to 10 for me", rule=just_numbers(*range(1, 11))),
    visit("count up from 3 until 8", rule=just_numbers(3, 4, 5, 6, 7, 8)),
    visit("give me a countdown from 5", rule=begins_with_number(5)),
    visit("start at 20 and count to 25", rule=just_numbers(20, 21, 22, 23, 24, 25)),
    visit("let's count to four together", rule=just_numbers(1, 2, 3, 4)),
    visit("i am at 41, next number?", rule=ends_with_number(42)),
    visit("which number is right before 30", rule=ends_with_number(29)),
    visit("list the numbers between 6 and 12, both included",
       rule=just_numbers(6, 7, 8, 9, 10, 11, 12)),
    visit("how high can you count? try fifteen", rule=just_numbers(*range(1, 16))),
    visit("count by twos up to 10", rule=just_numbers(2, 4, 6, 8, 10)),
    visit("in steps of 5 from 5 to 25 please", rule=just_numbers(5, 10, 15, 20, 25)),
    visit("1 2 3 4 5 what's next?", rule=ends_with_number(6)),
    visit("backwards from 8 to 4, count!", rule=just_numbers(8, 7, 6, 5, 4)),
    visit("cuont to 7", rule=just_numbers(1, 2, 3, 4, 5, 6, 7)),
    visit("say the numbers from one to six", rule=just_numbers(1, 2, 3, 4, 5, 6)),
)  # fmt: skip

UNITS: Final[tuple[Visit, ...]] = (
    visit("how many cm go into 3 m?", rule=ends_with_number(300)),
    visit("2 km, but in metres please", rule=ends_with_number(2000)),
    visit("i need 5 kilos in grams", rule=ends_with_number(5000)),
    visit("what's 4 hours expressed in minutes", rule=ends_with_number(240)),
    visit("turn 7 m into cm", rule=ends_with_number(700)),
    visit("3 weeks, how many days is that?", rule=ends_with_number(21)),
    visit("two whole days in hours?", rule=ends_with_number(48)),
    visit("9 kg = how many g", rule=ends_with_number(9000)),
    visit("express 6 cm as mm", rule=ends_with_number(60)),
    visit("four litres, that's how many ml?", rule=ends_with_number(4000)),
    visit("seconds in 3 minutes?", rule=ends_with_number(180)),
    visit("If I walk 8 km, how many meters did I walk?", rule=ends_with_number(8000)),
    visit("500 cm, in m that is", rule=ends_with_number(5)),
    visit("a bag of 6000 g weighs how many kg?", rule=ends_with_number(6)),
    visit("a film of 120 minutes runs how many hours", rule=ends_with_number(2)),
    visit("pls convert 5 m in cm", rule=ends_with_number(500)),
)  # fmt: skip
