#include "simd_neon.h"
// Each after the header that it is written against.
#include "kernels_body.h"

#include "kernels_products.h"

#include "kernels_attention.h"

namespace lanehost {
const KernelSet* neon_kernels() {
    static constexpr KernelSet kernels = make_kernels("neon");
    return &kernels;
}
}  // namespace lanehost
