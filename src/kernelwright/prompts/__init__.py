"""Turns tasks and feedback into messages for a policy, and its answers into candidates.

Prompts describe the task, the format of candidates and the rules; feedback gives the verdict with the candidate's own
lines. Neither holds expected outputs beyond the one element that a `wrong` verdict names.
"""

from __future__ import annotations

from kernelwright.prompts.answers import ParseFailure, parse_answer, parse_program
from kernelwright.prompts.messages import continued, conversation, feedback, initial_messages

__all__ = [
    "ParseFailure",
    "continued",
    "conversation",
    "feedback",
    "initial_messages",
    "parse_answer",
    "parse_program",
]
