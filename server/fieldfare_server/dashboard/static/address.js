// Addresses: #run=ID, #population=NAME, or the overview, with the search and the filter of its lists. Each can be sent.
export const runAddress = (id) => `#run=${encodeURIComponent(id)}`;
export const populationAddress = (name) => `#population=${encodeURIComponent(name)}`;

export function read() {
  const hash = new URLSearchParams(location.hash.slice(1));
  const [run, population] = [hash.get("run"), hash.get("population")];
  const view = run ? "run" : population ? "population" : "overview";
  return { view, run, population, search: hash.get("search") || "", filter: { population: population || "", state: hash.get("state") || "", asks: hash.get("asks") || "" } };
}

// The address of the same view with another search or filter.
export function written({ population, search, filter }) {
  const hash = new URLSearchParams(Object.entries({ population, search, state: filter.state, asks: filter.asks }).filter(([, value]) => value));
  return `#${hash}`;
}
