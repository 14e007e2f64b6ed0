#pragma once
#define BOTH __host__ __device__
