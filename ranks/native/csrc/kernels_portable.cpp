#include "simd_portable.h"
// Each after the header that it is written against.
#include "kernels_body.h"

#include "kernels_products.h"

#include "kernels_attention.h"

namespace lanehost {
const KernelSet* portable_kernels() {
    static constexpr KernelSet kernels = make_kernels("portable");
    return &kernels;
}
}  // namespace lanehost
