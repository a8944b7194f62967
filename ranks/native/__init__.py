"""The native CPU path of a rank: quantized weights, integer products, the same bits anywhere."""
