// The areas of the extension module. Only this folder knows Python.
#pragma once
#include <nanobind/nanobind.h>

namespace cortiq {

void bind_core(nanobind::module_& m);      // processor, hash64
void bind_probe(nanobind::module_& m);     // measurements of the machine
void bind_layouts(nanobind::module_& m);   // encode, decode
void bind_kernels(nanobind::module_& m);   // linear operators, singly
void bind_ops(nanobind::module_& m);       // the other operators, singly
void bind_plan(nanobind::module_& m);      // the executor
void bind_sampling(nanobind::module_& m);  // sampler

}  // namespace cortiq
