// Runs before the first paint, so that a chosen theme does not flash.
(() => {
  let chosen = "";
  try { chosen = localStorage.getItem("fieldfare.theme") || ""; } catch { /* storage may be off: the system's theme then */ }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
