// Draw everything, and again when the colours or the paper change.
if (document.getElementById('federation-choice') && data.federations.length < 2) document.getElementById('federation-choice').closest('.controls').hidden = true;
if (data.steps.length === 1) document.getElementById('steps-run').parentElement.hidden = true;

dark.addEventListener('change', showAll);
addEventListener('beforeprint', () => {
  document.documentElement.classList.add('printing');
  for (const details of document.querySelectorAll('details')) details.open = true;
  for (const id of plots.keys()) show(id);
});
addEventListener('afterprint', () => {
  document.documentElement.classList.remove('printing');
  showAll();
});

showAll().then(() => {
  performance.mark('drawn');
  document.documentElement.dataset.drawn = 'all';
});
