// Two rows of points. Search changes what stands between the two marks.
#include <stdio.h>

// EVOLVE-BLOCK-START
static void place(double points[10][2]) {
    for (int i = 0; i < 10; i++) {
        points[i][0] = 0.2 + 0.15 * (i % 5);
        points[i][1] = i < 5 ? 0.35 : 0.65;
    }
}
// EVOLVE-BLOCK-END

int main(void) {
    double points[10][2];
    place(points);
    for (int i = 0; i < 10; i++) printf("%s[%.17g, %.17g]", i ? ", " : "[", points[i][0], points[i][1]);
    puts("]");
}
