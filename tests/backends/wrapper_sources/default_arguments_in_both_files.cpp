torch::Tensor scale(torch::Tensor x, double a = 2.0);
