"""White-box attacks: on single steps of a method, and on the noisy sums of a fit."""
