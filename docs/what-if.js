// What a plan costs, in the browser: nothing is sent and nothing is read. Equal to `fieldfare plan` to the last digit
// shown (tests/docs/test_what_if.py), for releases whose noise is a sum of plain Gaussians: no sampling.
(() => {
  "use strict";

  /** exp(e) Phi(-x), to about fourteen digits relative. */
  function tail(x, e = 0) {
    const z = x / Math.SQRT2;
    if (z < -1.5) return Math.exp(e) - tail(-x, e);
    if (z < 1.5) {
      let term = z, sum = z;
      for (let k = 1; Math.abs(term) > 1e-18 * Math.abs(sum); k++) sum += term *= (2 * z * z) / (2 * k + 1);
      return Math.exp(e) * (0.5 - (Math.exp(-z * z) * sum) / Math.sqrt(Math.PI));
    }
    let fraction = z;
    for (let k = Math.ceil(8 + 160 / (z * z)); k >= 1; k--) fraction = z + k / 2 / fraction;
    return Math.exp(e - z * z) / (2 * Math.sqrt(Math.PI) * fraction);
  }

  /** delta(epsilon) of a mu-GDP release (Balle and Wang 2018). */
  const deltaOf = (mu, epsilon) => tail(epsilon / mu - mu / 2) - tail(epsilon / mu + mu / 2, epsilon);

  /** Where a decreasing function falls below 0, from above. */
  function falls(f, high = 1) {
    let low = 0;
    while (f(high) > 0) [low, high] = [high, 2 * high];
    for (let i = 0; i < 200; i++) {
      const middle = (low + high) / 2;
      if (middle <= low || middle >= high) break;
      if (f(middle) > 0) low = middle;
      else high = middle;
    }
    return high;
  }
  const epsilonOf = (mu, delta) => (deltaOf(mu, 0) <= delta ? 0 : falls((epsilon) => deltaOf(mu, epsilon) - delta));
  /** 1 / mu for the largest mu within (epsilon, delta). */
  const sigmaOf = (epsilon, delta) => falls((sigma) => deltaOf(1 / sigma, epsilon) - delta);

  /** Coefficients of C and B for B(z) = sqrt(1 - (1 - nu) z), shape (n,); nu = 1 is independent noise. */
  function coefficients(nu, n) {
    const c = new Float64Array(n).fill(1), b = new Float64Array(n).fill(1);
    for (let t = 1; t < n; t++) {
      c[t] = (c[t - 1] * (1 - nu) * (t - 0.5)) / t;
      b[t] = (b[t - 1] * (1 - nu) * (t - 1.5)) / t;
    }
    return [c, b];
  }

  /** The norm of C's columns of the evenly spaced rounds, summed: exact for falling c (Kalinin and Lampert 2024). */
  function sensitivity(c, separation, count) {
    let square = 0;
    for (let t = 0; t < c.length; t++) {
      let sum = 0;
      for (let k = 0; k < count && k * separation <= t; k++) sum += c[t - k * separation];
      square += sum * sum;
    }
    return Math.sqrt(square);
  }

  const LIMITS = {
    rounds: [1, 20000, true], separation: [1, 20000, true], most: [1, 20000, true],
    epsilon: [0.001, 1000], noise: [1e-3, 1e6], delta: [1e-30, 0.1], nu: [0, 1],
  };

  /**
   * What a plan costs. `plan`: kind ("independent", "optimal-cc", "nu" with `nu`), rounds, separation and most
   * (participations of a user), delta, and epsilon or noise. Throws a sentence for what is out of range.
   */
  function price(plan) {
    for (const [name, [least, largest, whole]] of Object.entries(LIMITS)) {
      const value = plan[name];
      if (value === undefined) continue;
      if (!(value >= least && value <= largest) || (whole && !Number.isInteger(value))) throw new Error(`${name}: ${whole ? "a whole" : "a"} number from ${least} to ${largest}.`);
    }
    const nu = { independent: 1, "optimal-cc": 0 }[plan.kind] ?? plan.nu;
    const [c, b] = coefficients(nu, plan.rounds);
    const moved = sensitivity(c, plan.separation, plan.most) * (plan.adjacency === "replace_one" ? 2 : 1);
    const noise = plan.noise ?? moved * sigmaOf(plan.epsilon, plan.delta);
    const mu = moved / noise;
    let prefix = 0, square = 0, total = 0;
    for (const value of b) total += square += (prefix += value) ** 2;
    return { noise, sensitivity: moved, mu, epsilon: epsilonOf(mu, plan.delta), greatest: noise * Math.sqrt(square), rms: noise * Math.sqrt(total / plan.rounds) };
  }

  /** A number of six significant digits, written as `fieldfare plan` does. */
  function decimal(value) {
    if (value === 0) return "0";
    const [digits, exponent] = value.toExponential(5).split("e").map(Number);
    return exponent < -4 || exponent > 5 ? `${digits}e${exponent}` : String(Number(value.toPrecision(6)));
  }

  if (typeof module !== "undefined") module.exports = { price, decimal };
  if (typeof document === "undefined") return;

  const form = document.getElementById("plan-prices"), answer = document.getElementById("plan-prices-answer");
  if (!form || !answer) return;
  const ROWS = [["Noise multiplier", "noise"], ["Epsilon", "epsilon"], ["Sensitivity, clip norms", "sensitivity"], ["GDP mu", "mu"], ["Noise in a prefix sum, RMS", "rms"], ["The same, at most", "greatest"]];
  function show() {
    const given = Object.fromEntries(new FormData(form)), plan = { kind: given.kind, adjacency: given.adjacency };
    for (const name of ["rounds", "separation", "most", "delta", "nu"]) plan[name] = Number(given[name]);
    plan[given.by] = Number(given.value);
    form.elements.nu.disabled = given.kind !== "nu";
    if (given.kind !== "nu") delete plan.nu;
    answer.replaceChildren();
    try {
      const found = price(plan);
      const table = answer.appendChild(document.createElement("table"));
      for (const [label, name] of ROWS) {
        const row = table.insertRow();
        const head = row.appendChild(document.createElement("th"));
        head.scope = "row";
        head.textContent = label;
        row.insertCell().textContent = decimal(found[name]);
      }
    } catch (error) {
      answer.textContent = error.message;
    }
  }
  form.addEventListener("input", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
  show();
})();
