#include "simd_avx2.h"
// Each after the header that it is written against.
#include "kernels_body.h"

#include "kernels_products.h"

#include "kernels_attention.h"

namespace lanehost {
const KernelSet* avx2_kernels() {
    static constexpr KernelSet kernels = make_kernels("avx2");
    return &kernels;
}
}  // namespace lanehost
