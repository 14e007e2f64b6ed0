import glob
import os
import os.path as osp

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

this_dir = osp.dirname(osp.abspath(__file__))
_ext_src_root = osp.join("ops_lib")
_ext_sources = glob.glob(osp.join(_ext_src_root, "src", "*.cpp")) + glob.glob(osp.join(_ext_src_root, "src", "*.cu"))
_ext_headers = glob.glob(osp.join(_ext_src_root, "include", "*"))

os.environ["TORCH_CUDA_ARCH_LIST"] = "7.0;7.5;8.0"
setup(
    name="point_ops",
    ext_modules=[
        CUDAExtension(
            name="point_ops_ext",
            sources=_ext_sources,
            extra_compile_args={"cxx": ["-O3"], "nvcc": ["-O3", "-Xfatbin", "-compress-all"]},
            include_dirs=[osp.join(this_dir, _ext_src_root, "include")],
        )
    ],
    cmdclass={"build_ext": BuildExtension},
    include_package_data=True,
)
