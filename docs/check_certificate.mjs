// Check a Fieldfare certificate, in another language and by other code than check_certificate.py.
//
//     node docs/check_certificate.mjs CERTIFICATE.json [KEY [MODEL]]
//
// It was written from docs/certificate.md alone, needs Node 20 and no package, and prints `yes: ...` (exit 0) or
// `no: ...` with the first line that does not hold (exit 1). Section names below are those of docs/certificate.md.
import { createHash, createPublicKey, verify } from "node:crypto";
import { readFileSync, realpathSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { inflateSync } from "node:zlib";

class Refused extends Error {}
function must(holds, otherwise) {
  if (holds !== true) throw new Refused(otherwise);
}
const sha256 = (...parts) => {
  const hash = createHash("sha256");
  for (const part of parts) hash.update(part);
  return hash.digest();
};
const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);
const number = (value, what) => {
  must(typeof value === "number" && Number.isFinite(value) && value >= 0, `${what} is no number from 0 on`);
  return value;
};
const whole = (value, what) => {
  must(Number.isSafeInteger(value) && value >= 1, `${what} is no whole number from 1 on`);
  return value;
};

/** Read JSON, of which no number is beyond a double's range. */
function read(text) {
  must(typeof text === "string", "a part is no text of JSON");
  return JSON.parse(text, (_, value) => {
    must(typeof value !== "number" || Number.isFinite(value), "a number is beyond the range of doubles");
    return value;
  });
}

/** Decode base64 that has one spelling. */
function decode(text) {
  const raw = Buffer.from(text, "base64");
  must(raw.toString("base64") === text, "a part is no base64");
  return raw;
}

// -- rows, tree, checkpoint -------------------------------------------------------------------------------------------

const NAMES = ["action", "actor", "at", "body", "event", "id", "population", "round", "run"];
const TOKEN = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

/** Read JSON such that each number becomes {"text": the digits as they stand in the file}. */
const parseExact = (text) => JSON.parse(text.replace(TOKEN, (m) => (m[0] === '"' ? m : `{"text":"${m}"}`)));

/** Write a string, number or null as Python does: numbers by their text, other characters than ASCII escaped. */
function canonical(value) {
  if (value !== null && typeof value === "object") return value.text;
  const escaped = (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0");
  return JSON.stringify(value).replace(/[\u0080-\uffff]/g, escaped);
}

/** Hash the rows and read them: [{action, ..., body (read), hash}]. */
function readRows(exact, plain) {
  const rows = plain.map((values, i) => {
    must(values.length === 10, "a row has other than ten columns");
    must(values.every((v) => v === null || ["string", "number"].includes(typeof v)), "a column holds no plain value");
    must(typeof values[0] === "string", "a row has no action");
    const content = NAMES.map((name, j) => `"${name}":${canonical(exact[i][j])}`).join(",");
    const row = Object.fromEntries(NAMES.map((name, j) => [name, values[j]]));
    must(/^[0-9a-f]{64}$/.test(values[9]), "a row has no previous hash");
    const hash = sha256(Buffer.from(values[9], "hex"), `{${content}}`);
    return { ...row, body: read(row.body), previous: values[9], hash };
  });
  for (let i = 0; i < rows.length; i++) {
    whole(rows[i].id, "a row's id");
    must(i === 0 || rows[i].id > rows[i - 1].id, "rows are not in the log's order");
    const follows = i > 0 && rows[i].id === rows[i - 1].id + 1;
    must(!follows || rows[i].previous === rows[i - 1].hash.toString("hex"), "a row does not follow the one before");
  }
  return rows;
}

/** Compute the root of the tree of `size` leaves (RFC 6962, 2.1) from the rows that are here and `others`. */
function rootOf(rows, others, size) {
  let used = 0;
  const node = (from, to, first, last) => {
    if (first === last) {
      must(/^[0-9a-f]{64}$/.test(others[used] ?? ""), "a node of the tree is missing");
      return Buffer.from(others[used++], "hex");
    }
    if (to - from === 1) return sha256(Buffer.from([0]), rows[first].hash);
    let half = 1;
    while (2 * half < to - from) half *= 2;
    let middle = first;
    while (middle < last && rows[middle].id <= from + half) middle++;
    return sha256(Buffer.from([1]), node(from, from + half, first, middle), node(from + half, to, middle, last));
  };
  must(rows.length > 0 && rows.at(-1).id <= size, "a row lies past the end of the log");
  const root = node(0, size, 0, rows.length);
  must(used === others.length, "there are nodes that the tree does not have");
  return root;
}

function checkCheckpoint(made, rows) {
  const split = made.checkpoint.indexOf("\n\n");
  const text = made.checkpoint.slice(0, split + 1);
  const [origin, size, root, said, ...more] = text.split("\n");
  must(more.length === 1 && more[0] === "" && /^fieldfare\.ledger\/./.test(origin), "the checkpoint has other lines");
  must(/^[0-9a-f]{64}$/.test(made.key), "the key is no Ed25519 key");
  const raw = Buffer.from(made.key, "hex");
  const name = sha256(`${origin}\n`, Buffer.from([1]), raw).subarray(0, 4);
  const key = createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x: raw.toString("base64url") }, format: "jwk" });
  const own = made.checkpoint.slice(split + 2).split("\n").filter((line) => line.startsWith(`\u2014 ${origin} `))
    .map((line) => decode(line.split(" ")[2])).filter((each) => each.subarray(0, 4).equals(name));
  must(own.length > 0, "the key did not sign the checkpoint");
  for (const each of own) must(verify(null, Buffer.from(text), key, each.subarray(4)), "the signature does not hold");
  const digest = sha256(...rows.map((row) => row.hash)).toString("hex");
  must(said === `rows ${rows[0].population} ${made.run} ${rows.length} ${digest}`, "rows are missing, added or moved");
  must(rootOf(rows, made.others, whole(Number(size), "the log's size")).toString("base64") === root,
    "the rows do not stand in the tree that is signed");
}

/** The digest of a model by the tensors of its safetensors file. */
function digestOfModel(file) {
  const start = 8 + Number(file.readBigUInt64LE(0)), { __metadata__, ...header } = JSON.parse(file.subarray(8, start));
  const points = (name) => Array.from(name, (c) => c.codePointAt(0).toString(16).padStart(6, "0")).join();
  const ordered = Object.keys(header).sort((a, b) => (points(a) < points(b) ? -1 : 1));
  return sha256(...ordered.flatMap((name) => {
    const { shape, data_offsets: [from, to] } = header[name];
    return [`[${canonical(name)},${JSON.stringify(shape)}]`, file.subarray(start + from, start + to)];
  })).toString("hex");
}

// -- Gaussian curves --------------------------------------------------------------------------------------------------

/** exp(e) Phi(-x), to about fourteen digits relative. */
function tail(x, e = 0) {
  const z = x / Math.SQRT2;
  if (z < -1.5) return Math.exp(e) - tail(-x, e);
  if (z < 1.5) {
    let term = z, sum = z;
    for (let k = 1; Math.abs(term) > 1e-18 * Math.abs(sum); k++) sum += (term *= (2 * z * z) / (2 * k + 1));
    return Math.exp(e) * (0.5 - (Math.exp(-z * z) * sum) / Math.sqrt(Math.PI));
  }
  let fraction = z; // z + (1/2)/(z + 1/(z + (3/2)/(z + ...)))
  for (let k = Math.ceil(8 + 160 / (z * z)); k >= 1; k--) fraction = z + k / 2 / fraction;
  return Math.exp(e - z * z) / (2 * Math.sqrt(Math.PI) * fraction);
}

/** Phi(b) - Phi(a) for a <= b, without cancellation in the tails. */
const between = (a, b) => Math.max(0, a > 0 ? tail(a) - tail(b) : tail(-b) - tail(-a));
const gauss = (mu, e) => (mu === 0 ? 0 : tail(e / mu - mu / 2) - tail(e / mu + mu / 2, e));
const curveOf = (mu, leak) => (e) => leak + (1 - leak) * gauss(mu, e);

/** Round to twelve digits, and then up to nine. */
function upwards(x) {
  const exact = Number(x.toPrecision(12)), near = Number(exact.toPrecision(9));
  return near >= exact ? near : Number((near + 10 ** (Math.floor(Math.log10(exact)) - 8)).toPrecision(9));
}

/** Find where a decreasing function falls below 0. */
function falls(f, low, high) {
  while (f(high) > 0) [low, high] = [high, 2 * high];
  for (let i = 0; i < 200 && low < high; i++) {
    const middle = (low + high) / 2;
    if (f(middle) > 0) low = middle;
    else high = middle;
  }
  return high;
}
const epsilonAt = (mu, delta) => (gauss(mu, 0) <= delta ? 0 : falls((e) => gauss(mu, e) - delta, 0, 1));

// -- what the rows say ------------------------------------------------------------------------------------------------

const events = ({ sampled = [], certified }) => {
  must(Array.isArray(sampled) && Array.isArray(certified ?? []), "what a run costs has another form");
  return sampled.length + (certified ?? []).length;
};
const nothing = (loss) => events(loss) === 0 && loss.mu_squared === 0;
const amplified = (loss) => events(loss) > 0;

/** What a run takes from its population, by its rows. */
function chargeOf(start, finish) {
  const price = read(start.price), planned = read(start.planned);
  number(price.mu_squared, "a price's mu^2"), number(price.leak, "a price's leak");
  if (!finish) return price;
  const spent = read(finish.spent);
  if (nothing(spent)) return { mu_squared: 0, leak: 0 };
  return amplified(planned) ? price : { mu_squared: number(spent.mu_squared, "spent mu^2"), leak: price.leak };
}

/** The guarantee of the population: {epsilon, delta, square (M), leak (D), odometers, adjacency}, not overdrawn. */
function populationOf(rows) {
  const [first] = rows;
  must(first.action === "population.create", "the first row creates no population");
  must(rows.filter((row) => row.action === "population.create").length === 1, "the population is created twice");
  must(rows.every((row) => row.population === first.population), "a row is another population's");
  // A name is printed in the verdict: it has no space and no control character that could write another one.
  must(/^[A-Za-z0-9][A-Za-z0-9._-]*$/.test(first.population), "the population has a name that there is not");
  const leak = number(first.body.leak, "D");
  const terms = rows.filter((row, i) => i === 0 || row.action === "population.raise").map(({ body }) => {
    const { epsilon, delta } = body;
    number(epsilon, "epsilon"), number(delta, "delta");
    must(epsilon > 0 && delta < 1 && leak < delta, "D is not below delta");
    const inner = (delta - leak) / (1 - leak);
    return { epsilon, delta, square: falls((m) => inner - gauss(Math.sqrt(m), epsilon), 0, 1) };
  });
  const best = terms.reduce((a, b) => (b.square > a.square ? b : a));
  const odometers = first.body.accounting === "individual" || rows.some((r) => r.action === "population.odometers");
  const charges = new Map(), open = new Map(); // open: what started, and has neither ended nor been given back
  for (const { action, run, body } of rows) {
    const name = action.startsWith("run.") ? `run ${run}` : `charge ${body.key}`;
    if (["run.start", "charge.reserve", "charge.carry"].includes(action)) {
      must(!charges.has(name), "a run or a charge starts twice");
      charges.set(name, action === "run.start" ? chargeOf(body, null) : read(body.price)), open.set(name, body);
    }
    if (["run.finish", "charge.release"].includes(action)) {
      must(open.has(name), "what was not under way ends");
      charges.set(name, action === "run.finish" ? chargeOf(open.get(name), body) : { mu_squared: 0, leak: 0 });
      open.delete(name);
    }
  }
  const sum = (part) => [...charges.values()].reduce((total, price) => total + number(price[part], part), 0);
  const inside = sum("mu_squared") <= best.square * (1 + 1e-9) && sum("leak") <= leak * (1 + 1e-9);
  must(odometers || inside, "the runs take more than the population has");
  return { ...best, leak, odometers, adjacency: first.body.adjacency };
}

const RECEIPT = new RegExp("^(fieldfare-receipt-v([12]) ([0-9a-f]{64}) ([0-9a-f]{64}) [0-9a-f]{64} " +
  "([1-9][0-9]*) ([1-9][0-9]*) ([0-9a-f]{64})(?: ([0-9.e+-]+))?) ([0-9a-f]{128})$");

/** Check what a blinder signed of each round, and return its key; "" where no sum is masked. */
function blinderOf(plan, commits, sigma) {
  const { kind, least_nodes: least, blinder: party, blinder_noise: part = 0 } = plan.aggregation ?? {};
  const signed = commits.filter(({ body }) => body.receipt);
  must(signed.length === (kind === "masked" ? commits.length : 0), "rounds with masks, and no others, have receipts");
  let key = party ? party.slice(-64) : null, last = { row: 0, hash: "" };
  for (const { body } of signed) {
    const parts = RECEIPT.exec(body.receipt);
    must(parts !== null, "a receipt has another form");
    const [, text, form, signer, question, nodes, row, hash, noise, signature] = parts, added = Number(noise ?? 0);
    must((form === "2") === (noise !== undefined) && (form === "2") === added > 0, "a receipt has another form");
    must(added >= part * sigma && added < Infinity, "the blinder added less noise than the plan says");
    const jwk = { kty: "OKP", crv: "Ed25519", x: Buffer.from(signer, "hex").toString("base64url") };
    const own = createPublicKey({ key: jwk, format: "jwk" });
    const holds = verify(null, Buffer.from(text), own, Buffer.from(signature, "hex"));
    must(holds && signer === (key ??= signer), "a receipt is not signed by the run's blinder");
    must(Number(nodes) >= least, "the blinder opened a sum of too few nodes");
    const next = sha256(`fieldfare.blinder.row.v1 ${last.hash} ${question}`).toString("hex");
    must(Number(row) > last.row && (Number(row) > last.row + 1 || hash === next), "the blinder's journal went back");
    last = { row: Number(row), hash };
  }
  return signed.length > 0 ? key : "";
}

/** What a run tells its server alone, of whose sums the blinder that the plan names hides the numbers; "" of others. */
function againstServer(plan, planned, noise, inner, stated) {
  const { blinder: party, blinder_noise: part } = plan.aggregation ?? {}, { charged_resolution: resolution = 0 } = plan;
  if (!party || !part) return "";
  must(part > 0 && part <= 1 && plan.privacy.rounding === "grid" && resolution >= 0, "the blinder has other noise");
  const square = Math.max(number(planned.mu_squared, "planned mu^2") - resolution, noise) / part ** 2 + resolution;
  const epsilon = epsilonAt(Math.sqrt(square), inner);
  must(number(stated.server, "epsilon against the server") >= epsilon * (1 - 1e-9), "the server learns more");
  return `; epsilon ${upwards(stated.server)} against the server`;
}

// -- the noise --------------------------------------------------------------------------------------------------------

/** Honaker's online tree: row t is the estimate of the sum of rounds 0..t less that of rounds 0..t-1. */
function onlineTree(n) {
  const whole = [], rows = []; // whole: the finished subtrees so far, largest first
  let before = new Map();
  for (let t = 0, nodes = 0; t < n; t++) {
    whole.push({ height: 0, variance: 1, weights: new Map([[nodes++, 1]]) });
    while (whole.length > 1 && whole.at(-1).height === whole.at(-2).height) {
      const right = whole.pop(), left = whole.pop(), children = left.variance + right.variance;
      const variance = children / (1 + children), own = Math.fround(variance); // a node's own noise has variance 1
      const weights = new Map([[nodes++, own]]);
      for (const each of [left, right]) for (const [k, w] of each.weights) weights.set(k, w * (1 - own));
      whole.push({ height: left.height + 1, variance, weights });
    }
    const now = new Map(whole.flatMap((tree) => [...tree.weights]));
    const row = new Float64Array(2 * n);
    for (const [k, w] of now) row[k] += w;
    for (const [k, w] of before) row[k] -= w;
    rows.push(row), (before = now);
  }
  return rows;
}

/** The first n rows of the matrix that was applied to the noise. */
function noisingOf(noising, n, rounds) {
  const [form] = Object.keys(noising);
  must(Object.keys(noising).length === 1, "there is more than one matrix");
  if (form === "tree" && noising.tree === "online") return onlineTree(n);
  must(form === "toeplitz" || form === "dense", `a matrix of the unknown form ${form}`);
  const { base64, sha256: digest, shape } = noising[form];
  const raw = decode(base64);
  must(sha256(raw).toString("hex") === digest, "the matrix has another digest");
  const fits = shape.every(Number.isInteger) && raw.length === 8 * shape.reduce((a, b) => a * b, 1) && shape[0] >= n;
  must(fits && shape.length === (form === "dense" ? 2 : 1), "the matrix has another shape");
  const at = (i) => raw.readDoubleLE(8 * i);
  const columns = form === "dense" ? shape[1] : rounds;
  return Array.from({ length: n }, (_, t) => Float64Array.from({ length: columns }, (_, j) =>
    form === "dense" ? at(t * columns + j) : j <= t ? at(t - j) : 0));
}

const dot = (a, b, length = a.length) => {
  let sum = 0;
  for (let i = 0; i < length; i++) sum += a[i] * b[i];
  return sum;
};

/** Invert a lower-triangular matrix: column j of the answer is `columns[j]`. */
function inverseColumns(lower) {
  const n = lower.length;
  return Array.from({ length: n }, (_, j) => {
    const x = new Float64Array(n);
    for (let i = j; i < n; i++) x[i] = ((i === j ? 1 : 0) - dot(lower[i], x, i)) / lower[i][i];
    return x;
  });
}

/** |G| for G = (B B^T)^-1, and a bound of its relative error. */
function gram(b) {
  const n = b.length, product = b.map((row) => Float64Array.from(b, (other) => dot(row, other)));
  const lower = b.map(() => new Float64Array(n));
  for (let i = 0; i < n; i++) {
    for (let j = 0; j <= i; j++) {
      const rest = product[i][j] - dot(lower[i], lower[j], j);
      lower[i][j] = i === j ? Math.sqrt(rest) : rest / lower[j][j];
    }
    must(lower[i][i] > 0, "the matrix has dependent rows");
  }
  const inverse = inverseColumns(lower); // columns of R; G = R^T R
  const g = inverse.map((x) => Float64Array.from(inverse, (y) => Math.abs(dot(x, y))));
  const r = Array.from({ length: n }, (_, i) => Float64Array.from(inverse, (x) => x[i])); // rows of R
  const rb = r.map((row) => Float64Array.from(b[0], (_, c) => b.reduce((s, each, k) => s + row[k] * each[c], 0)));
  const norm = (rows) => Math.max(...rows.map((row) => row.reduce((s, x) => s + Math.abs(x), 0)));
  const column = (rows, c) => rows.reduce((sum, row) => sum + Math.abs(row[c]), 0);
  const columns = (rows) => Math.max(...Array.from(rows[0], (_, c) => column(rows, c)));
  const off = norm(rb.map((x, i) => Float64Array.from(rb, (y, j) => dot(x, y) - (i === j ? 1 : 0))));
  const error = off + 4 * (n + b[0].length) * 2 ** -53 * norm(r) * norm(b) * columns(b) * columns(r);
  must(error < 1e-6, "the matrix is too close to a singular one for doubles");
  return { g, error };
}

/** The greatest sum of |G| over the patterns of users, as their participants say. */
function worstOfUsers(made, commits, g) {
  must(made.participants.length === commits.length, "there are participants of other rounds");
  const patterns = new Map();
  made.participants.forEach((each, t) => {
    const raw = decode(each), { body } = commits[t];
    must(raw[0] === 1 && sha256(raw).toString("hex") === body.participants, `round ${t} had other participants`);
    let user = 0, step = 0, scale = 1, count = 0;
    for (const byte of inflateSync(raw.subarray(1))) {
      step += (byte & 127) * scale;
      if ((scale *= 128) && byte & 128) continue;
      must(count === 0 || step > 0, `a user is twice in round ${t}`);
      must(Number.isSafeInteger((user += step)), `a user of round ${t} has no number`); // two numbers are never one
      patterns.set(user, [...(patterns.get(user) ?? []), t]);
      [step, scale, count] = [0, 1, count + 1];
    }
    must(scale === 1 && count === body.participant_count, `round ${t} had another number of participants`);
  });
  return Math.max(0, ...[...patterns.values()].map((p) => sumOver(g, p)));
}
const sumOver = (g, p) => p.reduce((sum, i) => sum + p.reduce((s, j) => s + g[i][j], 0), 0);

/** Prove that no pattern of at most k rounds at least b apart sums to more than `square`. */
function proveWorst(g, b, k, square) {
  const n = g.length, limit = square * (1 + 1e-12);
  // best[c][i]: the greatest sum of c weights before i, b apart
  const greedy = (weight, upTo, most) => {
    let row = new Float64Array(upTo + 1);
    for (let c = 1; c <= most; c++) {
      const next = new Float64Array(upTo + 1);
      for (let i = 1; i <= upTo; i++) next[i] = Math.max(next[i - 1], weight(i - 1) + row[Math.max(0, i - b)]);
      row = next;
    }
    return row[upTo];
  };
  const total = g.map((row, i) => row[i] + 2 * (i >= b ? greedy((j) => row[j], i - b + 1, k - 1) : 0));
  const suffix = [new Float64Array(n + b + 1)]; // suffix[c][i]: the greatest sum of c totals from i on
  for (let c = 1; c <= k; c++) {
    suffix.push(new Float64Array(n + b + 1));
    for (let i = n - 1; i >= 0; i--) suffix[c][i] = Math.max(suffix[c][i + 1], total[i] + suffix[c - 1][i + b]);
  }
  let nodes = 0;
  const search = (from, left, sum, chosen) => {
    must(sum <= limit, "a pattern costs more than the worst that is claimed");
    if (left === 0 || sum + suffix[left][Math.min(from, n)] <= limit) return;
    must(++nodes < 2e6, "this checker cannot prove the worst pattern of so many rounds");
    for (let i = from; i < n && sum + suffix[left][i] > limit; i++) {
      search(i + b, left - 1, sum + g[i][i] + 2 * chosen.reduce((s, j) => s + g[i][j], 0), [...chosen, i]);
    }
  };
  search(0, k, 0, []);
}

/** One pattern that a scheme allows: round 0, and each next one as soon as it may be. */
const evenly = ({ separation: b, count: k }, n) =>
  Array.from({ length: Math.min(k, Math.ceil(n / b)) }, (_, i) => i * b);

function worstOfScheme(made, plan, g) {
  const { scheme, groups, bins, separation } = plan.participation, n = g.length, { worst } = made.accounting;
  must(typeof scheme === "string", "the plan has no scheme");
  const b = { __proto__: null, "cyclic-poisson": groups, "balls-in-bins": bins, "b-min-sep": separation }[scheme] ?? 1;
  const k = Math.ceil(n / (scheme === "random-allocation" ? bins : b));
  number(worst.square, "the worst pattern's square"), whole(worst.count, "how many rounds the worst pattern has");
  must(worst.separation === b && worst.count >= k, "the worst pattern is another scheme's");
  const p = worst.witness;
  must(p.every((t, i) => Number.isInteger(t) && t >= 0 && t < n && (i === 0 || t - p[i - 1] >= b)), "no such pattern");
  must(p.length <= k && sumOver(g, p) <= worst.square * (1 + 1e-9), "the witness costs more than is claimed");
  proveWorst(g, b, k, worst.square);
  return worst.square;
}

// -- amplified: privacy loss distributions ----------------------------------------------------------------------------

/** Transform in place; the length is a power of two. */
function fft(re, im, sign) {
  const n = re.length;
  for (let i = 1, j = 0; i < n; i++) {
    let bit = n >> 1;
    for (; j & bit; bit >>= 1) j ^= bit;
    j ^= bit;
    if (i < j) [re[i], re[j], im[i], im[j]] = [re[j], re[i], im[j], im[i]];
  }
  const cos = new Float64Array(n / 2), sin = new Float64Array(n / 2);
  for (let i = 0; i < n / 2; i++) {
    [cos[i], sin[i]] = [Math.cos((2 * Math.PI * i) / n), sign * Math.sin((2 * Math.PI * i) / n)];
  }
  for (let size = 2; size <= n; size *= 2) {
    for (let start = 0, half = size / 2, step = n / size; start < n; start += size) {
      for (let k = 0; k < half; k++) {
        const a = start + k, b = a + half, c = cos[k * step], s = sin[k * step];
        const x = re[b] * c - im[b] * s, y = re[b] * s + im[b] * c;
        (re[b] = re[a] - x), (im[b] = im[a] - y), (re[a] += x), (im[a] += y);
      }
    }
  }
}

/**
 * The distribution of a sum of `count` draws of `mass`, whose first cell is `low`, for each of `parts`, on cells from
 * `first` on (the rest of a circle is folded).
 */
function sumOfDraws(parts, first, cells) {
  let n = 2;
  while (n < Math.max(cells, ...parts.map(({ mass }) => mass.length))) n *= 2;
  must(n <= 2 ** 22, "this checker's grid is too small for these events");
  let re = new Float64Array(n).fill(1), im = new Float64Array(n);
  for (const { mass, count } of parts) {
    const a = new Float64Array(n), b = new Float64Array(n);
    a.set(mass);
    fft(a, b, 1);
    for (let i = 0; i < n; i++) {
      const size = Math.hypot(a[i], b[i]) ** count, turn = Math.atan2(b[i], a[i]) * count;
      const [x, y] = [size * Math.cos(turn), size * Math.sin(turn)];
      [re[i], im[i]] = [re[i] * x - im[i] * y, re[i] * y + im[i] * x];
    }
  }
  fft(re, im, -1);
  const shift = first - parts.reduce((sum, { low, count }) => sum + count * low, 0);
  return Float64Array.from({ length: n }, (_, i) => Math.max(0, re[(((i + shift) % n) + n) % n] / n));
}

/**
 * Put a likelihood ratio L under the world without the user onto the grid exp(h k), both orders at once: a part with
 * mass m and mean r / m between two points is split such that m and r stay. That only spreads L, so that every convex
 * function of it, hence delta of either order, rises.
 */
function onGrid(parts, h) {
  const low = Math.floor(parts.low / h), q = new Float64Array(Math.ceil(parts.high / h) - low + 2);
  parts.each(h, (cell, m, r) => {
    const a = Math.exp(h * cell), b = Math.exp(h * (cell + 1)), up = Math.min(m, Math.max(0, (r - a * m) / (b - a)));
    q[cell - low] += m - up;
    q[cell - low + 1] += up;
  });
  return { q, low };
}

const TINY = 1e-13;

/** One Poisson round: L = 1 - rate + rate exp((x - 1/2) / sigma^2), x normal with deviation sigma. */
function poissonParts(rate, sigma) {
  const top = 1 - rate + rate * Math.exp((8 * sigma + 1.5) / sigma ** 2);
  const at = (l) => (l <= 1 - rate ? -Infinity : sigma * Math.log((l - 1 + rate) / rate) + 0.5 / sigma);
  const cut = Math.log(top), x = at(top);
  return {
    low: rate < 1 ? Math.log(1 - rate) : -9 / sigma - 0.5 / sigma ** 2,
    high: cut,
    lost: rate * tail(x - 1 / sigma) + (1 - rate) * tail(x) + (rate < 1 ? 0 : tail(9)),
    each(h, put) {
      for (let cell = Math.floor(this.low / h), a = -40; cell * h < cut; cell++) {
        const b = Math.max(a, Math.min(x, at(Math.exp(h * (cell + 1)))));
        const m = between(a, b);
        put(cell, m, (1 - rate) * m + rate * between(a - 1 / sigma, b - 1 / sigma));
        a = b;
      }
    },
  };
}

/** Put exp(s x - s^2 / 2), x normal, onto the grid 0, step, ..., cells * step: every cell's mass and mean stay. */
function logNormal(s, step, cells) {
  const mass = new Float64Array(cells + 1);
  for (let i = 0, a = -40; i < cells; i++) {
    const b = Math.max(a, Math.log((i + 1) * step) / s + s / 2), m = between(a, b);
    const up = Math.min(m, Math.max(0, between(a - s, b - s) / step - i * m));
    (mass[i] += m - up), (mass[i + 1] += up), (a = b);
  }
  return mass;
}

/**
 * One block of an allocation: L is the mean of `bins` variables of mean 1, put onto an even grid first. Those of the
 * `held` rounds that the run has are log-normal, the others 1.
 */
function allocationParts(bins, sigma, held = bins) {
  const s = 1 / sigma, top = Math.exp(s * (7.5 + s) - (s * s) / 2), edge = Math.log(top) / s + s / 2;
  // Chernoff: less than exp(-45) of the sum lies past `most`.
  const coarse = logNormal(s, top / 4096, 4096);
  const log = (t) => Math.log(coarse.reduce((sum, m, i) => sum + m * Math.exp((t * i) / 4096), 0));
  const bounds = [0.25, 0.5, 1, 2, 4, 8, 16, 32, 64].map((t) => (top * (held * log(t) + 45)) / t);
  const most = Math.min(held * top, ...bounds), rest = bins - held, step = Math.max(top / 2 ** 18, most / 2 ** 21);
  const draws = [{ mass: logNormal(s, step, Math.ceil(top / step)), low: 0, count: held }];
  const sum = sumOfDraws(draws, 0, Math.ceil(most / step) + 1);
  let first = rest > 0 ? 0 : 1, last = Math.min(sum.length - 1, Math.ceil(most / step));
  const at = (i) => (i * step + rest) / bins, small = (i) => sum[i] * Math.max(1, at(i)) < 1e-17;
  while (small(first)) first++;
  while (small(last)) last--;
  return {
    low: Math.log(at(first)),
    high: Math.log(at(last)),
    lost: tail(edge - s) + held * tail(edge) + TINY,
    each(h, put) {
      for (let i = first; i <= last; i++) {
        const l = at(i);
        put(Math.floor(Math.log(l) / h), sum[i], sum[i] * l);
      }
    },
  };
}

/** Hold the composition of all blocks, `count` of each kind, against the curve, both orders. */
function mustDominate(curve, blocks, leakOfCap) {
  const widths = blocks.map(({ parts }) => {
    const wide = (parts.high - parts.low) / 4000, coarse = onGrid(parts, wide);
    return Math.sqrt(coarse.q.reduce((sum, m, i) => sum + m * (wide * (coarse.low + i)) ** 2, 0));
  });
  const h = Math.min(1e-3, Math.min(...widths) / 100);
  const grids = blocks.map(({ parts, count }) => ({ ...onGrid(parts, h), count }));
  const total = (of) => grids.reduce((sum, each) => sum + each.count * of(each), 0);
  for (const order of [1, -1]) {
    for (const each of grids) each.mass = order === 1 ? each.q.map((m, i) => m * Math.exp(h * (each.low + i))) : each.q;
    const log = (t) => total(({ mass, low }) =>
      Math.log(mass.reduce((sum, m, i) => sum + (m > 0 ? m * Math.exp(t * h * (low + i)) : 0), 0)));
    // Chernoff: less than exp(-30) of the sum lies past either edge.
    const edges = [0.125, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64];
    const past = (side) => edges.map((t) => (side * (log(side * t) + 30)) / t).filter(isFinite);
    const high = Math.min(h * total(({ low, mass }) => low + mass.length), ...past(1));
    const least = Math.max(h * total(({ low }) => low), ...past(-1));
    const first = Math.floor(least / h) - 1, cells = Math.ceil((high - least) / h) + 3;
    const sum = sumOfDraws(grids, first, cells);
    const kept = blocks.reduce((share, { parts, count }) => share * (1 - Math.min(1, parts.lost)) ** count, 1);
    const lost = 1 - kept + 2 * TINY;
    let above = 0, discounted = 0;
    for (let n = 0; n < cells; n++) {
      const i = order === 1 ? cells - 1 - n : n, loss = order * h * (first + i);
      if (loss < 0) break;
      const delta = lost + above - Math.exp(loss) * discounted;
      must(leakOfCap + (1 - leakOfCap) * delta <= curve(loss) + 1e-11, "the sampled rounds cost more than was charged");
      above += sum[i];
      discounted += sum[i] * Math.exp(-loss);
    }
  }
}

/** P(Bin(n, rate) >= cap). */
function binomialTail(n, rate, cap) {
  let term = n * Math.log1p(-rate), sum = 0;
  for (let k = 0; k <= n; k++) {
    if (k >= cap) sum += Math.exp(term);
    term += Math.log((n - k) / (k + 1)) + Math.log(rate / (1 - rate));
  }
  return Math.min(1, sum);
}

function bandsOf(columns) {
  const largest = Math.max(...columns.map((c) => c.reduce((m, x) => Math.max(m, Math.abs(x)), 0)));
  return 1 + Math.max(...columns.map((c, j) => c.findLastIndex((x) => Math.abs(x) > 1e-9 * largest) - j));
}

function checkSampled(planned, plan, sigma, columns, curve) {
  const { scheme, rate, groups, bins, cap, enrolled } = plan.participation, allocated = scheme === "random-allocation";
  must(["poisson", "cyclic-poisson", "truncated-poisson"].includes(scheme) || allocated, "nothing amplifies this");
  const events = planned.sampled.map((event) => !Array.isArray(event) ? event
    : { rate: event[0], noise_multiplier: event[1], count: event[2] });
  const cuts = events.filter((event) => "rounds" in event), cut = cuts[0];
  must(planned.mu_squared === 0 && events.length <= 1 + cuts.length && cuts.length <= (allocated ? 1 : 0),
    "there is more than one event");
  if (cut) must(cut.count === 1 && whole(cut.rounds, "rounds") < bins, "the last block is none that a run cuts short");
  const each = { "cyclic-poisson": groups, "random-allocation": bins }[scheme] ?? 1;
  const wanted = allocated ? { bins } : scheme === "truncated-poisson" ? { rate, cap, enrolled } : { rate };
  let covered = 0;
  for (const event of events) {
    const { noise_multiplier: noise, count, rounds, ...stated } = event;
    must(same(Object.entries(stated).sort(), Object.entries(wanted).sort()), "the event is another sampler's");
    must(noise === events[0].noise_multiplier, "one block has other noise than the others");
    covered += whole(count, "count") * (rounds ?? each);
  }
  must(covered >= plan.run.rounds, "fewer rounds are charged than were planned");
  const column = Math.max(...columns.map((c) => Math.sqrt(dot(c, c)))), noise = events[0].noise_multiplier;
  must(noise > 0 && noise * column <= sigma * (1 + 1e-12), "there is less noise");
  must(bandsOf(columns) <= (scheme === "cyclic-poisson" ? groups : 1), "the noise has more bands than are charged");
  const blocks = events.map(({ count, rounds }) =>
    ({ count, parts: allocated ? allocationParts(bins, noise, rounds) : poissonParts(rate, noise) }));
  const miss = scheme === "truncated-poisson" ? binomialTail(enrolled - 1, rate, cap) : 0;
  mustDominate(curve, blocks, 1 - (1 - miss) ** events[0].count);
}

// -- amplified: certified curves --------------------------------------------------------------------------------------

const logSum = (values) => {
  const most = values.reduce((a, b) => Math.max(a, b), -Infinity);
  return most === -Infinity ? most : most + Math.log(values.reduce((sum, v) => sum + Math.exp(v - most), 0));
};

/** {draw(): the rounds of a user, ratio(a, cross): log E exp(sum a_t - sum over pairs cross)} of a sampler. */
function samplerOf({ scheme, bins, separation: b, rate }, n) {
  const block = (j, k) => k * bins + j, blocks = Math.ceil(n / bins), pick = () => Math.floor(Math.random() * bins);
  const inside = (t) => t < n;
  if (scheme === "balls-in-bins") {
    const rounds = (j) => Array.from({ length: blocks }, (_, k) => block(j, k)).filter(inside);
    const patterns = Array.from({ length: bins }, (_, j) => rounds(j));
    const log = (p, a, cross) =>
      p.reduce((sum, t, i) => sum + a[t] - p.slice(0, i).reduce((s, u) => s + cross(u, t), 0), 0);
    const ratio = (a, cross) => logSum(patterns.map((p) => log(p, a, cross))) - Math.log(bins);
    return { bands: n, draw: () => patterns[pick()], ratio };
  }
  if (scheme === "random-allocation") {
    const draw = () => Array.from({ length: blocks }, (_, k) => block(pick(), k)).filter(inside);
    return { bands: bins + 1, draw, ratio(a, cross) {
      let later = new Array(bins).fill(0); // later[j]: all after block k, given that round j of block k was taken
      let answer = 0;
      for (let k = blocks - 1; k >= 0; k--) {
        const now = later.map((l, j) => l + (block(j, k) < n ? a[block(j, k)] : 0));
        if (k === 0) answer = logSum(now) - Math.log(bins);
        else later = later.map((_, i) => logSum(now.map((v, j) =>
          v - (block(j, k) < n ? cross(block(i, k - 1), block(j, k)) : 0))) - Math.log(bins));
      }
      return answer;
    } };
  }
  must(scheme === "b-min-sep", "no curve is certified for this sampler");
  const share = 1 / (b - 1 + 1 / rate); // the chance of each round; a warm start rests r rounds with this chance
  return { bands: b, draw() {
    const rest = Math.floor(Math.random() / share), rounds = [];
    for (let t = rest < b - 1 ? rest + 1 : 0; t < n; t++) if (Math.random() < rate) rounds.push(t), (t += b - 1);
    return rounds;
  }, ratio(a) {
    const from = new Array(n + b).fill(0); // from[t]: all from round t on, given that the user may take part in it
    const [yes, no] = [Math.log(rate), rate < 1 ? Math.log1p(-rate) : -Infinity];
    for (let t = n - 1; t >= 0; t--) from[t] = logSum([no + from[t + 1], yes + a[t] + from[t + b]]);
    return logSum(from.slice(0, b).map((v, r) => v + Math.log(r === 0 ? share / rate : share)));
  } };
}

/**
 * The law of a user's distance along the mean of all patterns, for a threshold on the output in that direction:
 * {values, chances}. `step[t]` is what round t adds; sums of many rounds are rounded down to a grid of 4096 steps.
 */
function distancesOf({ scheme, bins, separation: b, rate }, step) {
  const n = step.length;
  if (scheme === "balls-in-bins") {
    const values = Array.from({ length: bins }, (_, j) => step.reduce((s, v, t) => (t % bins === j ? s + v : s), 0));
    return { values, chances: values.map(() => 1 / bins) };
  }
  const most = Math.max(...step) * Math.ceil(n / (scheme === "b-min-sep" ? b : bins)), cells = 4096;
  const moved = step.map((v) => Math.floor((v / most) * cells * (1 - 1e-12)));
  const empty = () => new Float64Array(cells + 1);
  const add = (to, from, share, by = 0) => {
    for (let i = 0; i + by <= cells; i++) to[i + by] += share * from[i];
  };
  let law = empty();
  if (scheme === "random-allocation") {
    law[0] = 1;
    for (let start = 0; start < n; start += bins) {
      const after = empty();
      for (let t = start; t < start + bins; t++) add(after, law, 1 / bins, t < n ? moved[t] : 0);
      law = after;
    }
  } else {
    // Forwards: what those have who may take part from round t on, given that they have been at rest until then.
    const share = 1 / (b - 1 + 1 / rate), free = Array.from({ length: n + b }, empty);
    for (let rest = 0; rest < b; rest++) free[rest][0] = rest === 0 ? share / rate : share;
    for (let t = 0; t < n; t++) add(free[t + 1], free[t], 1 - rate), add(free[t + b], free[t], rate, moved[t]);
    for (const each of free.slice(n)) add(law, each, 1);
  }
  return { values: Array.from(law, (_, i) => (i * most) / cells), chances: Array.from(law) };
}

/** Hold a curve against one exact test: no delta lies below what a threshold on the output tells apart. */
function holdAgainstOneTest(plan, means, points) {
  const mean = means[0].map((_, i) => means.reduce((sum, c) => sum + c[i], 0)), length = Math.sqrt(dot(mean, mean));
  const { values, chances } = distancesOf(plan.participation, means.map((c) => dot(c, mean) / length));
  const last = Math.max(...values) + 8;
  const over = (f) => chances.reduce((s, p, i) => (p > 0 ? s + p * f(values[i]) : s), 0);
  for (let t = -6; t <= last; t += (last + 6) / 300) {
    const [none, rest] = [tail(t), tail(-t)], [seen, unseen] = [over((a) => tail(t - a)), over((a) => tail(a - t))];
    for (const [e, d] of points) {
      const reached = Math.max(seen - Math.exp(e) * none, rest - Math.exp(e) * unseen);
      must(reached - 1e-12 * Math.exp(e) <= d, `one exact test reaches more than the curve at epsilon ${e}`);
    }
  }
}

const normal = () => Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());
const TILTS = [0, 1, 2.5, 5], SAMPLES = 80000;

function checkCertified(planned, plan, sigma, columns, curve, leak) {
  must(planned.certified.length === 1 && planned.mu_squared === 0, "there is more than one curve");
  const { points, failure } = planned.certified[0], n = columns.length;
  must(failure >= 0 && failure <= 1e-9 && points.length > 1 && points[0][0] === 0, "the curve is none");
  must(points.every(([e, d], i) => d > 0 && d <= 1 && (i === 0 || e > points[i - 1][0])), "the curve is not in order");
  // The curve in exp(epsilon), its lower hull, against the charge.
  const hull = [];
  for (const [e, d] of points) {
    const p = [Math.exp(e), d], turns = ([a, b], [c, f]) => (f - b) * (p[0] - a) >= (p[1] - b) * (c - a);
    while (hull.length > 1 && turns(hull.at(-2), hull.at(-1))) hull.pop();
    hull.push(p);
  }
  for (let i = 1; i < hull.length; i++) {
    for (let part = 0; part <= 64; part++) {
      const [x, d] = [0, 1].map((j) => hull[i - 1][j] + ((hull[i][j] - hull[i - 1][j]) * part) / 64);
      must(d <= curve(Math.log(x)) + 1e-12, "the curve costs more than was charged");
    }
  }
  must(hull.at(-1)[1] <= leak, "the curve ends above the leak");
  // The curve against samples of the two worlds: a user's mean is the sum of the columns of |C| / sigma.
  const means = columns.map((c) => c.map((x) => Math.abs(x) / sigma)), size = means.map((c) => dot(c, c));
  const sampler = samplerOf(plan.participation, n), bands = bandsOf(columns);
  must(bands <= sampler.bands, "the noise has more bands than are charged");
  holdAgainstOneTest(plan, means, points);
  const table = means.map((c) => Float64Array.from(means, (d) => dot(c, d)));
  const sums = points.map(() => [0, 0, 0, 0]); // of delta and its square, one order and the other
  for (let each = 0; each < SAMPLES; each++) {
    const x = Float64Array.from({ length: n }, normal), tilt = TILTS[each % TILTS.length];
    for (const t of tilt > 0 ? sampler.draw() : []) for (let i = t; i < n; i++) x[i] += tilt * means[t][i];
    const inner = means.map((c, t) => dot(c, x));
    const logs = TILTS.map((s) => s === 0 ? 0 : sampler.ratio(inner.map((v, t) => s * v - (s * s * size[t]) / 2),
      (t, u) => s * s * table[t][u]));
    const proposal = logSum(logs) - Math.log(TILTS.length), loss = logs[1];
    const [p, q] = [Math.exp(loss - proposal), Math.exp(-proposal)];
    points.forEach(([e], i) => {
      const one = p * Math.max(0, 1 - Math.exp(e - loss)), other = q * Math.max(0, 1 - Math.exp(e + loss)), s = sums[i];
      (s[0] += one), (s[1] += one * one), (s[2] += other), (s[3] += other * other);
    });
  }
  points.forEach(([e, d], i) => [0, 2].forEach((j) => {
    const mean = sums[i][j] / SAMPLES, error = Math.sqrt(Math.max(0, sums[i][j + 1] / SAMPLES - mean * mean) / SAMPLES);
    must(mean - 5 * error <= d, `samples lie above the curve at epsilon ${e}`);
  }));
}

// -- the verdict ------------------------------------------------------------------------------------------------------

const PARTS = ["accounting", "assumptions", "checkpoint", "epsilon", "format", "key", "noise", "noising", "others",
  "participants", "plan", "price", "rows", "run", "theorems"];

/** Return what was proven of a certificate, one line. Throws `Refused`, or another error for what is no certificate. */
export function check(text, key, model) {
  const made = read(text);
  must(made.format === "fieldfare-certificate/2", "another format");
  must(same(Object.keys(made).sort(), PARTS), "parts are missing or unknown");
  must(key === undefined || key === "any" || key.toLowerCase() === made.key, "another key signed this log");
  const rows = readRows(parseExact(text).rows, made.rows);
  checkCheckpoint(made, rows);
  const population = populationOf(rows), own = rows.filter((row) => row.run === made.run);
  const [starts, finishes] = ["run.start", "run.finish"].map((each) => own.filter((row) => row.action === each));
  must(starts.length === 1 && finishes.length <= 1, "the run starts or ends other than once");
  const start = starts[0].body, planned = read(start.planned), plan = read(made.plan);
  must(sha256(made.plan).toString("hex") === start.plan, "the plan is another run's");
  const commits = rows.filter((row) => row.action === "round.commit"), n = commits.length;
  must(commits.every((row, t) => row.run === made.run && row.round === t), "rounds are missing or twice");
  must(start.rounds === plan.run.rounds && n <= start.rounds, "the plan has other rounds");
  const nonces = commits.map((row) => row.body.nonce);
  must(start.format === 0 || (nonces.every((each) => typeof each === "string" && each) && new Set(nonces).size === n), "noise was used twice");
  must(plan.privacy.adjacency === population.adjacency, "the plan has another adjacency");
  const secret = population.adjacency === "add_remove";
  must(["add_remove", "zero_out", "replace_one"].includes(population.adjacency), "an unknown adjacency");
  must(!secret || made.participants.length === 0, "participation is not secret");
  const sigma = number(made.noise.multiplier, "the noise multiplier"), stated = plan.privacy.noise_multiplier;
  must(sigma > 0 && (stated === null || sigma === stated), "the plan names another noise multiplier");

  const named = Object.entries(start.noise ?? {}).sort();
  const said = Object.entries({ ...made.noise, ...made.price.discrete }).sort();
  must(start.noise === undefined || same(named, said), "the log names other noise");

  const { mu_squared: square, leak, discrete } = made.price, charged = chargeOf(start, finishes[0]?.body);
  number(square, "mu^2"), number(leak, "the leak");
  must(square >= charged.mu_squared && leak >= charged.leak, "the log charged more");
  const theorems = ["filter"], curve = curveOf(Math.sqrt(charged.mu_squared) * (1 + 1e-4), charged.leak);
  const resolution = number("charged_resolution" in plan ? plan.charged_resolution : 0, "the resolution");
  const applied = noisingOf(made.noising, n, start.rounds);
  let error = 0, noisy = 0;
  if (n > 0 && amplified(planned) && charged.leak > 0) { // without a leak, the price is that of draws that are known
    must(secret, "an amplified run shows who took part");
    must(!(planned.sampled?.length && planned.certified?.length), "the run is charged in two ways");
    must(applied.every((row, i) => row.every((x, j) => j <= i || x === 0)), "a round has noise of a later one");
    const columns = inverseColumns(applied.map((row) => row.subarray(0, n))); // of an early end, what it released
    const kind = planned.certified?.length ? "certified" : "sampled";
    (kind === "certified" ? checkCertified : checkSampled)(planned, plan, sigma, columns, curve, charged.leak);
    theorems.push(kind);
  } else if (n > 0) {
    const b = gram(applied);
    const worst = secret ? worstOfScheme(made, plan, b.g) : worstOfUsers(made, commits, b.g);
    const f = population.adjacency === "replace_one" ? 2 : 1;
    noisy = (f * f * worst) / (sigma * sigma);
    // The population's sum takes the log's word: no less than one pattern that the scheme allows costs.
    const least = secret ? sumOver(b.g, evenly(made.accounting.worst, n)) : worst;
    must(charged.mu_squared >= ((f * f * least) / (sigma * sigma) + resolution) * (1 - b.error - 1e-9),
      "the rounds cost more than was charged to the population");
    let cost = noisy + resolution;
    theorems.push("gram");
    if (plan.privacy.rounding === "discrete") {
      const cells = whole(discrete.scale, "the scale"), values = whole(discrete.values, "the number of values");
      must(cells > 2, "the scale is too small");
      cost *= cells ** 2 / (cells ** 2 - 4);
      const least = (4.2 * values * Math.exp(-8 * Math.PI ** 2)) / tail(Math.sqrt(cost) / 2);
      must(leak >= least * (1 - 1e-9), "the leak is too small");
      theorems.push("discrete");
    }
    const { shows, kind, leak: asked } = plan.task?.question ?? {}, best = shows === "best";
    if (best || kind === "items") {
      const { adjacency, rounding } = plan.privacy, one = { kind: "flat", norm: 1 };
      must(adjacency === "zero_out" || (best && adjacency === "replace_one"), "this question has another adjacency");
      must(rounding === "grid" && plan.mechanism.kind === "independent", "this question has other noise");
      must(start.rounds === 1 && same(plan.clipping, one), "this question has one round, and clip norm 1");
      must(best || (asked > 0 && asked <= 0.25 && leak >= asked), "the leak is too small");
      theorems.push(best ? "range" : "threshold");
    } else must(!asked, "a question without a threshold has a leak");
    error = b.error + 1e-12;
    must(square >= cost * (1 - error), "the rounds cost more than was charged");
  }
  must(same(made.theorems, theorems.sort()), "the charge rests on other theorems");
  const epsilon = epsilonAt(Math.sqrt(square), (population.delta - population.leak) / (1 - population.leak));
  const { lo, hi } = made.epsilon;
  must(typeof lo === "number" && typeof hi === "number", "epsilon's interval is none");
  must(lo <= epsilon * (1 + error) && epsilon * (1 - error) <= hi, "epsilon lies outside its interval");
  const first = Number.isInteger(population.epsilon) ? population.epsilon.toFixed(1) : String(population.epsilon);
  const models = commits.map((row) => row.body.model ?? null), at = model ? models.indexOf(digestOfModel(model)) : null;
  must(at !== -1, "no round released this model");
  const notes = (start.noise ? "" : "; noise not in the log") + (at === null ? "" : `; the model of round ${at}`);
  const blinder = blinderOf(plan, commits, sigma), opened = plan.aggregation?.blinder ? "opened" : "rehearsed";
  const masks = blinder ? `; masked, ${opened} by ${blinder.slice(0, 16)}` : "";  // rehearsed: in the server's process
  const inner = (population.delta - population.leak) / (1 - population.leak);
  const by = notes + masks + againstServer(plan, planned, noisy, inner, made.epsilon) + (population.odometers ? ", by each user's own odometer" : "");
  const digits = upwards(epsilon * (1 + error));
  const delta = population.delta.toExponential();
  return `(${first}, ${delta}) for every user of ${rows[0].population}; this run epsilon ${digits}${by}; ` +
    `log key ${made.key.slice(0, 16)}`;
}

if (process.argv[1] && realpathSync(process.argv[1]) === fileURLToPath(import.meta.url)) {
  try {
    const [, , file, key, model] = process.argv;
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(readFileSync(file));
    console.log(`yes: ${check(text, key, model && readFileSync(model))}`);
  } catch (error) {
    console.log(`no: ${error.message}`);
    process.exitCode = 1;
  }
}
