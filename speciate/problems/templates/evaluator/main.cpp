// Two rows of points. Search changes what stands between the two marks.
#include <cstdio>
#include <utility>
#include <vector>

// EVOLVE-BLOCK-START
std::vector<std::pair<double, double>> points() {
    std::vector<std::pair<double, double>> all;
    for (int i = 0; i < 10; i++) all.push_back({0.2 + 0.15 * (i % 5), i < 5 ? 0.35 : 0.65});
    return all;
}
// EVOLVE-BLOCK-END

int main() {
    const char* before = "[";
    for (auto [x, y] : points()) {
        std::printf("%s[%.17g, %.17g]", before, x, y);
        before = ", ";
    }
    std::puts("]");
}
