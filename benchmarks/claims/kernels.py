"""Kernels that are to round alike on x86-64 processors with AVX2. Import this before PyTorch, which reads these once.

PyTorch, MKL and oneDNN choose kernels by the processor, MKL by its maker too: the same run then ends in other last
bits on an Intel and on an AMD processor. Asked for these, products of matrices, exponentials, convolutions and a run on
images were equal to the bit on an Intel Xeon with AVX-512 and on an AMD EPYC without it, emulated
(`benchmarks/README.md`). MKL's compatible kernels are slower: a run on images takes a quarter more. A variable that is
set already stays.
"""

from __future__ import annotations

import os
import platform
import sys

PORTABLE = {"ATEN_CPU_CAPABILITY": "avx2", "MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "AVX2"}

_EARLY = "torch" not in sys.modules
os.environ.setdefault("OMP_NUM_THREADS", "1")
if _EARLY:
    for _name, _value in PORTABLE.items():
        os.environ.setdefault(_name, _value)


def named() -> str:
    """The kernels that runs of this process use, for `versions` of what is stored. Of their own choice they may round
    otherwise on each machine."""
    import torch

    kernels = torch.backends.cpu.get_cpu_capability()
    portable = _EARLY and all(os.environ[name] == value for name, value in PORTABLE.items())
    return f"{platform.machine()} with " + (f"portable {kernels}" if portable else f"{kernels} of its own choice")
