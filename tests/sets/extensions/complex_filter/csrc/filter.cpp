#include "filter.h"

#include <sstream>

static void same_kind(at::TensorList tensors) {
    for (const auto& t : tensors) {
        if (t.scalar_type() != tensors[0].scalar_type()) {
            std::ostringstream message;
            message << "tensors differ: " << t.options() << ", " << t.scalar_type() << " on " << t.device()
                    << " against " << tensors[0].dtype() << " with sizes " << t.sizes();
            throw std::invalid_argument(message.str());
        }
    }
}

void run(at::Tensor re, at::Tensor im, at::Tensor w_re, at::Tensor w_im, at::Tensor out_re, at::Tensor out_im,
         at::Tensor energy) {
    same_kind({re, im, w_re, w_im, out_re, out_im, energy});
    TORCH_CHECK(re.sym_sizes() == im.sym_sizes(), "shapes differ");
    TORCH_CHECK_TYPE(re.is_floating_point(), "floats are needed, these are ", re.toString());
    filter::launch(re, im, w_re, w_im, out_re, out_im, energy, {.normalised = false, .gain = std::nullopt});
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("filter", &run, py::call_guard<py::gil_scoped_release>()); }
