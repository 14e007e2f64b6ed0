"""The profile ladder: what a candidate's kernels do, from the best source that this machine has.

`profile(task, candidate)` climbs ncu (hardware counters), then a CUPTI trace by torch's profiler, then what can be read
from the machine code, which needs no GPU. It explains; it never judges. Import of this module is light: no torch.
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
