"""Arrays of numbers or names, with the few operations that the kernels' data movement needs."""

import math
from itertools import product


class Array:
    """Numbers or names in row-major order."""

    def __init__(self, shape, values):
        self.shape, self.values = list(shape), list(values)
        assert math.prod(self.shape) == len(self.values)

    def at(self, *index):
        flat = 0
        for i, size in zip(index, self.shape, strict=True):
            flat = flat * size + i
        return self.values[flat]

    def reshape(self, shape):
        return Array(shape, self.values)

    def permute(self, *order):
        shape = [self.shape[axis] for axis in order]
        inverse = [order.index(axis) for axis in range(len(order))]
        return Array(shape, [self.at(*(i[axis] for axis in inverse)) for i in product(*map(range, shape))])

    def split(self):
        return Array(self.shape[:-1], self.values[::2]), Array(self.shape[:-1], self.values[1::2])


def join(a, b):
    return Array([*a.shape, 2], [x for both in zip(a.values, b.values, strict=True) for x in both])
