from setuptools import setup
from torch.utils import cpp_extension

CXX_FLAGS = ["-g", "-O2", "-std=c++17"]
NVCC_FLAGS = CXX_FLAGS.copy()
NVCC_FLAGS += ["--expt-relaxed-constexpr", "-DENABLE_FP8"]

setup(
    name="small_vllm",
    ext_modules=[
        cpp_extension.CUDAExtension(
            name="small_vllm_C",
            sources=["csrc/torch_bindings.cpp", "csrc/activation_kernels.cu", "csrc/layernorm_kernels.cu"],
            extra_compile_args={"cxx": CXX_FLAGS, "nvcc": NVCC_FLAGS},
            define_macros=[("TORCH_EXTENSION_OWN", "1")],
        )
    ],
    cmdclass={"build_ext": cpp_extension.BuildExtension.with_options(no_python_abi_suffix=True)},
)
