// Sets the chosen colours before the first paint, so that a dark page never flashes white. A plain script: modules run too late.
(() => {
  try {
    const chosen = localStorage.getItem('crossrank.theme');
    if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset.theme = chosen;
  } catch { /* storage may be forbidden: then the system's colours are used */ }
})();
