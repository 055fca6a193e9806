"""Questions about users' data: what each user contributes, and how the noised sum is read.

A question is a run of one round. Each user who answers gives one vector of norm at most 1; their sum is noised, charged
and released as any round is, with the same noise, journal, odometers and certificate. What is here is the rest: from a
user's numbers to that vector (`Question.contributions`), and from the noised sum to numbers with intervals
(`Question.read`), which is post-processing and costs nothing. A kind is one file with one class under `@register`.

*Privacy.* Under zero_out a user's vector is in the sum or zero, so the sum moves by at most 1; under replace_one by at
most 2. With noise of standard deviation sigma a question costs mu = 1 / sigma, or 2 / sigma, however many numbers it
gives. Who answers is public, and so is how many do. A user without a value contributes zero, and is not missing.
"""

from __future__ import annotations

from fieldfare.questions import area, choice, distribution, items, number, sums
from fieldfare.questions.base import Estimate, Question, Values, kinds, parse

__all__ = [
    "Estimate",
    "Question",
    "Values",
    "area",
    "choice",
    "distribution",
    "items",
    "kinds",
    "number",
    "parse",
    "sums",
]
