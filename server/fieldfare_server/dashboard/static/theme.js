// Runs before the first paint, so that the page does not flash in another theme.
(() => {
  let chosen = "";
  try { chosen = localStorage.getItem("fieldfare.theme") || ""; } catch { /* storage may be off; the system's theme applies */ }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
