"""The profile ladder: profiles a candidate's kernels by the best source that this machine has.

`profile(task, candidate)` tries ncu (hardware counters), then a CUPTI trace by torch's profiler, then static analysis
of the machine code, which needs no GPU. It explains performance and never judges. Importing it does not import torch.
"""

from kernelwright.profile.facts import KernelProfile, Missed, Occupancy, Profile, Resources, Roofline, Rung, TraceFacts
from kernelwright.profile.ladder import ProfileOptions, profile

__all__ = [
    "KernelProfile",
    "Missed",
    "Occupancy",
    "Profile",
    "ProfileOptions",
    "Resources",
    "Roofline",
    "Rung",
    "TraceFacts",
    "profile",
]
