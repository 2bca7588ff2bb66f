// The traits of kernels, for kernels.
#pragma once

#include "mla/traits.h"
