#include "simd_portable.h"
// After the header that it is written against.
#include "kernels_body.h"

namespace lanehost {
const KernelSet* portable_kernels() {
    static constexpr KernelSet kernels = make_kernels("portable");
    return &kernels;
}
}  // namespace lanehost
