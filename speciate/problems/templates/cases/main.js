// Only add digits. Search changes what stands between the two marks.

// EVOLVE-BLOCK-START
function numeral(n) {
  let text = "";
  for (const [digit, value] of [["M", 1000], ["D", 500], ["C", 100], ["L", 50], ["X", 10], ["V", 5], ["I", 1]]) {
    text += digit.repeat(Math.floor(n / value));
    n %= value;
  }
  return text;
}
// EVOLVE-BLOCK-END

const [n] = JSON.parse(require("fs").readFileSync(0, "utf8"));
console.log(JSON.stringify(numeral(n)));
