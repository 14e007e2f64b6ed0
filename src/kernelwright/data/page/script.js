// Filters rows by verdict (a button, or #verdict in the address) and by text; #c-HASH opens one candidate.
const rows = [...document.querySelectorAll('details.row')];
const texts = rows.map((row) => row.textContent.toLowerCase());
const search = document.querySelector('input');
const buttons = [...document.querySelectorAll('.counts button')];
const named = decodeURIComponent(location.hash.slice(1));
let verdict = buttons.some((b) => b.dataset.verdict === named) ? named : '';

function show() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  rows.forEach((row, i) => {
    const hit = (!verdict || row.dataset.verdict === verdict) && words.every((word) => texts[i].includes(word));
    row.hidden = !hit;
    shown += hit;
  });
  document.querySelector('#shown').textContent = shown + ' of ' + rows.length;
  for (const b of buttons) b.setAttribute('aria-pressed', b.dataset.verdict === verdict);
}

search.addEventListener('input', show);
for (const b of buttons) {
  b.addEventListener('click', () => {
    verdict = verdict === b.dataset.verdict ? '' : b.dataset.verdict;
    history.replaceState(null, '', '#' + verdict);
    show();
  });
}
const chosen = named.startsWith('c-') && document.getElementById(named);
if (chosen) {
  chosen.open = true;
  chosen.scrollIntoView();
}
show();
