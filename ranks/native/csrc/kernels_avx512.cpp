#include "simd_avx512.h"
// After the header that it is written against.
#include "kernels_body.h"

namespace lanehost {
const KernelSet* avx512_kernels() {
    static constexpr KernelSet kernels = make_kernels("avx512");
    return &kernels;
}
}  // namespace lanehost
