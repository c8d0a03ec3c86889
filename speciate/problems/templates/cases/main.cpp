// Only add digits. Search changes what stands between the two marks.
#include <iostream>
#include <string>

// EVOLVE-BLOCK-START
std::string numeral(int n) {
    const int values[] = {1000, 500, 100, 50, 10, 5, 1};
    std::string text;
    for (int i = 0; i < 7; i++)
        for (; n >= values[i]; n -= values[i]) text += "MDCLXVI"[i];
    return text;
}
// EVOLVE-BLOCK-END

int main() {
    char bracket;
    int n;
    if (!(std::cin >> bracket >> n)) return 1;
    std::cout << '"' << numeral(n) << '"' << std::endl;
}
