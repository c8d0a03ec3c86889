// Two rows of points. Search changes what stands between the two marks.

// EVOLVE-BLOCK-START
function points() {
  return Array.from({ length: 10 }, (_, i) => [0.2 + 0.15 * (i % 5), i < 5 ? 0.35 : 0.65]);
}
// EVOLVE-BLOCK-END

console.log(JSON.stringify(points()));
