// What Python calls. Every name starts with lanehost_; pointers are not checked here, the
// caller in `ranks/native/library.py` makes them of arrays that it checked.
#include <cstring>
#include <new>

#include "kernels.h"
#include "model.h"
#include "rates.h"

#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#define EXPORTED extern "C" __attribute__((visibility("default")))

using lanehost::Activations;
using lanehost::FineActivations;
using lanehost::Frame;
using lanehost::AttentionTask;
using lanehost::Half;
using lanehost::KernelSet;
using lanehost::Layer;
using lanehost::Matrix;
using lanehost::Model;
using lanehost::Shape;
using lanehost::Step;
using lanehost::Words;
using lanehost::Write;

namespace {

bool can_run(const char* name) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (std::strcmp(name, "avx2") == 0)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
    if (std::strcmp(name, "avx512") == 0)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("f16c");
#elif defined(__aarch64__) && defined(__linux__)
    if (std::strcmp(name, "neon") == 0) return getauxval(AT_HWCAP) & HWCAP_ASIMDDP;
#endif
    return std::strcmp(name, "portable") == 0;
}

const KernelSet* const* all_sets() {
    static const KernelSet* const sets[] = {
#if defined(LANEHOST_WIDE_SETS) && defined(__x86_64__)
        lanehost::avx512_kernels(), lanehost::avx2_kernels(),
#elif defined(LANEHOST_WIDE_SETS) && defined(__aarch64__)
        lanehost::neon_kernels(),
#endif
        lanehost::portable_kernels(), nullptr};
    return sets;
}

// Null where the set was not built, or this processor lacks it.
const KernelSet* find(const char* name) {
    for (const KernelSet* const* set = all_sets(); *set; set++)
        if (std::strcmp((*set)->name, name) == 0 && can_run(name)) return *set;
    return nullptr;
}

}  // namespace

// Which sources this was made of (`ranks/native/build.py`).
EXPORTED const char* lanehost_sources() { return LANEHOST_SOURCES; }
EXPORTED int lanehost_can_run(const char* set) { return find(set) != nullptr; }
// All kernels of a set, for the comparison of sets (tests/ranks/native/emulated).
EXPORTED const KernelSet* lanehost_find_set(const char* set) { return find(set); }

EXPORTED Model* lanehost_new_model(const Shape* shape, const Layer* layers, int num_layers,
                                   const char* set, int num_threads) {
    const KernelSet* kernels = find(set);
    if (kernels == nullptr) return nullptr;
    return new (std::nothrow) Model(*shape, layers, num_layers, *kernels, num_threads);
}
EXPORTED void lanehost_end_model(Model* model) { delete model; }
// The exchange is null for a rank that holds all shards; how it ended, in the words of exchange.h.
EXPORTED int lanehost_run(Model* model, const Step* step, float* x, lanehost::Exchange* exchange) {
    return model->run(*step, x, exchange);
}
// As `lanehost_run`; -1 when the words do not fit, and nothing was run.
EXPORTED int lanehost_forward(Model* model, const Frame* frame, const int64_t* words, int64_t count,
                              lanehost::Exchange* exchange, float* logits) {
    Words step;
    if (!step.read(words, count) || !step.fit(*frame)) return -1;
    return model->forward(*frame, step, exchange, logits);
}
EXPORTED void lanehost_attention_half(Model* model, const Step* step, int layer, const float* x,
                                      float* share) {
    model->attention_half(*step, layer, x, share);
}
EXPORTED void lanehost_mlp_half(Model* model, int layer, const float* x, int rows, float* share) {
    model->mlp_half(layer, x, rows, share);
}
EXPORTED void lanehost_add_total(Model* model, const float* total, const float* bias, int rows,
                                 float* x) {
    model->add_total(total, bias, rows, x);
}
EXPORTED void lanehost_head(Model* model, const float* x, const float* norm, const Matrix* weight,
                            int rows, float* y) {
    model->head(x, norm, *weight, rows, y);
}
EXPORTED void lanehost_draw(Model* model, const float* logits, int width, const int32_t* rows,
                            const lanehost::Draw* draws, int count, int64_t* ids) {
    model->draw(logits, width, rows, draws, count, ids);
}
// Nanoseconds of the parts of the last step, in the order of watch.h.
EXPORTED void lanehost_parts(const Model* model, int64_t* ns) {
    for (int part = 0; part < lanehost::kNumParts; part++) ns[part] = model->watch().ns(part);
}
// What a step is compared with.
EXPORTED double lanehost_read_ns(const uint64_t* words, int64_t count, uint64_t* sum) {
    return lanehost::read_ns(words, count, sum);
}
EXPORTED double lanehost_hot_ops(const char* set, const Matrix* weight, int is_fine, double for_s) {
    return lanehost::hot_ops(*find(set), *weight, is_fine, for_s);
}
EXPORTED uint64_t lanehost_num_stages(const Model* model) { return model->num_stages(); }

// Single kernels, for the tests.
EXPORTED void lanehost_look_up(const uint8_t* row, int groups, float* y) {
    lanehost::look_up(row, groups, y);
}
EXPORTED void lanehost_quantize(const char* set, const float* x, int rows, const Activations* to) {
    for (int row = 0; row < rows; row++, x += to->groups * lanehost::kGroup)
        find(set)->quantize(x, *to, row, 0, to->groups);
}
EXPORTED void lanehost_product(const char* set, const Matrix* weight, int first, int last,
                               const Activations* x, int rows, float* y) {
    find(set)->product(*weight, first, last, *x, rows, y, weight->outputs, Write::kSet, {});
}
EXPORTED void lanehost_quantize_finely(const char* set, const float* x, int rows,
                                       const FineActivations* to) {
    for (int row = 0; row < rows; row++, x += to->groups * lanehost::kGroup)
        find(set)->quantize_finely(x, *to, row);
}
EXPORTED void lanehost_product_finely(const char* set, const Matrix* weight, int first, int last,
                                      const FineActivations* x, int rows, float* y) {
    find(set)->product_finely(*weight, first, last, *x, rows, y, weight->outputs);
}
EXPORTED void lanehost_norm(const char* set, const float* x, const float* weight, int width,
                            float eps, float* y) {
    find(set)->norm(x, weight, width, eps, y);
}
EXPORTED void lanehost_rotate(const char* set, float* head, const float* cos, const float* sin,
                              int head_dim, float scale) {
    find(set)->rotate(head, cos, sin, head_dim, scale);
}
EXPORTED void lanehost_gate(const char* set, const float* gate, const float* up, int count, float* y) {
    find(set)->gate(gate, up, count, y);
}
EXPORTED void lanehost_to_half(const char* set, const float* x, int count, Half* y) {
    find(set)->to_half(x, count, y);
}
EXPORTED int32_t lanehost_likeliest(const char* set, const float* x, int count) {
    return find(set)->likeliest(x, count);
}
EXPORTED void lanehost_attend(const char* set, const AttentionTask* task) { find(set)->attend(*task); }
