"""What a policy is asked, and what its answers mean: task and feedback to messages, answers to candidates.

Prompts describe the task, the format of candidates and the rules; feedback says what happened, with the candidate's own
lines. Neither ever holds expected outputs beyond the one element that a wrong verdict names.
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
