// Before anything is drawn: the theme that was chosen, and that there are scripts.
(() => {
  const root = document.documentElement;
  root.classList.add('js');
  let chosen = null;
  try { chosen = localStorage.getItem('theme'); } catch { /* no storage: the system decides */ }
  if (chosen === 'light' || chosen === 'dark') root.dataset.theme = chosen;
})();
