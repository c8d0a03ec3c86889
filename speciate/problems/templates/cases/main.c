// Only add digits. Search changes what stands between the two marks.
#include <stdio.h>

// EVOLVE-BLOCK-START
static void print_numeral(int n) {
    const int values[] = {1000, 500, 100, 50, 10, 5, 1};
    for (int i = 0; i < 7; i++)
        for (; n >= values[i]; n -= values[i]) putchar("MDCLXVI"[i]);
}
// EVOLVE-BLOCK-END

int main(void) {
    int n;
    if (scanf("[%d]", &n) != 1) return 1;
    putchar('"');
    print_numeral(n);
    puts("\"");
}
