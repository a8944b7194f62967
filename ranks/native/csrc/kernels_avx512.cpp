#include "simd_avx512.h"
// Each after the header that it is written against.
#include "kernels_body.h"

#include "kernels_products.h"

#include "kernels_attention.h"

namespace lanehost {
const KernelSet* avx512_kernels() {
    static constexpr KernelSet kernels = make_kernels("avx512");
    return &kernels;
}
}  // namespace lanehost
