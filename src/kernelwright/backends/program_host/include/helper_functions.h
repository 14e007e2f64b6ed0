// All of the samples' helpers without CUDA calls, as their helper_functions.h includes them.
#pragma once
#include <exception.h>
#include <helper_image.h>
#include <helper_string.h>
#include <helper_timer.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cassert>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>
