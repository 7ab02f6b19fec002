# SPDX-License-Identifier: Apache-2.0
"""Kernels found in a text, and the text as a C++ compiler gets it."""

from __future__ import annotations

import pytest

from gda.run.source import for_host, read


def parameters(text: str) -> list[str]:
    (kernel,) = read(text).kernels.values()
    return [parameter.text for parameter in kernel.parameters]


@pytest.mark.parametrize(
    ("text", "name", "found"),
    [
        ("__global__ void k() {}", "k", []),
        ("__global__ void k(void) {}", "k", []),
        ("GDA_KERNEL(k)(int a) {}", "k", ["int a"]),
        ("GDA_KERNEL( k ) ( int a,\n  float *b) {}", "k", ["int a", "float* b"]),
        ("static __global__ void __launch_bounds__(256, 2) k(int) {}", "k", ["int"]),
        ("__global__ __launch_bounds__(N * (2)) void k(unsigned int n) {}", "k", ["unsigned int n"]),
        ("__global__ void k(const float* __restrict__ in, double** out) {}", "k", ["const float* in", "double** out"]),
        ("__global__ void k(unsigned long long) {}", "k", ["unsigned long long"]),
        ("__global__ void k(int a[], int b = f(1, 2), std::pair<int, int> p) {}", "k",
         ["int* a", "int b", "std::pair<int,int> p"]),
        ("__global__ void k(float const* const p) {}", "k", ["const float* p"]),
        ("__global__ void k(struct s v, const __grid_constant__ big b) {}", "k", ["s v", "big b"]),
        ("namespace a { namespace b { __global__ void k(int x) {} } }", "a::b::k", ["int x"]),
        ("namespace a::b { __global__ void k(int x) {} }", "a::b::k", ["int x"]),
        ('extern "C" { __global__ void k(int x) {} }', "k", ["int x"]),
        ("namespace a { int f() { return 1; } }\n__global__ void k(int x) {}", "k", ["int x"]),
        ("template <class T, int N = 4> __global__ void k(T* x, T y) {}", "k", ["T* x", "T y"]),
        ("// __global__ void no() {}\n/* GDA_KERNEL(no)() */ const char* s = \"__global__ void no()\";\n"
         "#define K __global__ void no()\n__global__ void k(int x /* , int y */) {}", "k", ["int x"]),
        ('const char* s = R"x(__global__ void no(int a) { )x"; __global__ void k(int x) {}', "k", ["int x"]),
        ("char c = '{'; char d = '\\''; int n = 1'000; __global__ void k(int x) {}", "k", ["int x"]),
    ],
)  # fmt: skip
def test_kernels(text: str, name: str, found: list[str]) -> None:
    assert list(read(text).kernels) == [name]
    assert parameters(text) == found


def test_template_and_line() -> None:
    source = read("\n\ntemplate <class T, int N>\n__global__ void k(T* x) {}\nvoid f() {}\n__global__ void other() {}")
    assert source.kernels["k"].template == ("T", "N")
    assert source.kernels["k"].line == 4
    assert source.kernels["other"].template == ()


def test_aliases_and_includes() -> None:
    source = read('#include <gda/gda.h>\n  #  include "mine.h"\ntypedef unsigned int u;\nusing p = const float*;')
    assert source.includes == ["<gda/gda.h", '"mine.h']
    assert source.aliases["u"].type == "unsigned int"
    assert (source.aliases["p"].type, source.aliases["p"].pointers) == ("float", 1)


def test_lines_stay() -> None:
    text = "a\n/* b\n */ extern __shared__\n  int s[];\nvoid f() {\n extern __shared__ float t[\n];\n while (x) ;\n}\n"
    assert for_host(text).count("\n") == text.count("\n")


@pytest.mark.parametrize(
    ("text", "rewritten"),
    [
        ("void f() { extern __shared__ int s[]; }",
         "int* const s = static_cast<int*>(::gda_host_here->dynamic_shared)"),
        ("extern __shared__ int s[];", "static const ::gda::target::dynamic_shared<int> s"),
        ("namespace n { extern __shared__ unsigned char s[]; }", "dynamic_shared<unsigned char> s"),
        ("void f() { extern __shared__ __align__(16) float4 s[]; }", "float4* const s"),
        ("void f() { extern __align__(16) __shared__ float s[]; }", "float* const s"),
        ("void f() { while (!*p) ; }", "while ((gda_host_loop(), !*p)) ;"),
        ("void f() { do { } while (a && b); }", "while ((gda_host_loop(), a && b));"),
        ("void f() { for (; a < b;) ; }", "for (; (gda_host_loop(), a < b);) ;"),
        ("void f() { for (;;) ; }", "for (; (gda_host_loop(), true);) ;"),
    ],
)  # fmt: skip
def test_rewritten(text: str, rewritten: str) -> None:
    assert rewritten in for_host(text)


@pytest.mark.parametrize(
    "text",
    [
        "void f() { for (int i = 0; i < n; i++) ; }",
        "void f() { for (int x : list) ; }",
        "void f() { while (int n = next()) ; }",
        "extern int shared;",
        'extern "C" void f();',
        '// while (x)\n"while (x)"; R"(while (x))"',
        "#define LOOP while (x)\n",
    ],
)
def test_left_alone(text: str) -> None:
    assert for_host(text) == text
