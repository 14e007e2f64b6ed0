torch::Tensor relu(torch::Tensor x);
