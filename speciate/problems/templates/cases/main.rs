// Only add digits. Search changes what stands between the two marks.
use std::io::stdin;

// EVOLVE-BLOCK-START
fn numeral(mut n: usize) -> String {
    let mut text = String::new();
    for (digit, value) in [("M", 1000), ("D", 500), ("C", 100), ("L", 50), ("X", 10), ("V", 5), ("I", 1)] {
        text += &digit.repeat(n / value);
        n %= value;
    }
    text
}
// EVOLVE-BLOCK-END

fn main() {
    let mut line = String::new();
    stdin().read_line(&mut line).unwrap();
    let n = line.trim().trim_matches(['[', ']']).parse().unwrap();
    println!("\"{}\"", numeral(n));
}
