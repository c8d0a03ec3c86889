// Two rows of points. Search changes what stands between the two marks.

// EVOLVE-BLOCK-START
fn points() -> Vec<[f64; 2]> {
    (0..10).map(|i| [0.2 + 0.15 * f64::from(i % 5), if i < 5 { 0.35 } else { 0.65 }]).collect()
}
// EVOLVE-BLOCK-END

fn main() {
    println!("{:?}", points());
}
