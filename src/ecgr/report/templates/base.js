// The data, the theme, and the plots: each a function from theme to traces, drawn again when the theme changes.
const data = JSON.parse(document.getElementById('data').textContent);
const plots = new Map();
const dark = matchMedia('(prefers-color-scheme: dark)');
const touch = matchMedia('(pointer: coarse)');
const hovers = matchMedia('(hover: hover)');
const narrow = matchMedia('(max-width: 48rem)');
const DASHES = ['dash', 'solid', 'solid', 'dot', 'dashdot', 'longdash'];
const COLOURS = 6;

// Plotly reads a little HTML in every text. Names are text.
function plain(text, most = 48) {
  const whole = String(text);
  const cut = whole.length > most ? whole.slice(0, most - 1) + '…' : whole;
  return cut.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}

function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function readTheme() {
  const theme = { methods: [] };
  for (const name of ['paper', 'ink', 'quiet', 'line', 'grid', 'strip', 'absent', 'damped', 'cell', 'low', 'middle', 'high']) theme[name] = css('--' + name);
  for (let i = 0; i < COLOURS; i++) theme.methods.push(css('--method-' + i));
  theme.font = css('--sans');
  return theme;
}

function methodColour(theme, number) {
  if (number < 0) return theme.quiet;
  return number === 0 ? theme.methods[0] : theme.methods[1 + ((number - 1) % (COLOURS - 1))];
}

function methodDash(number) {
  if (number < 0) return 'dot';
  return number === 0 ? DASHES[0] : DASHES[1 + ((number - 1) % (COLOURS - 1))];
}

function faint(colour, alpha) {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  return `rgba(${r},${g},${b},${alpha})`;
}

function axis(theme, title, more = {}) {
  return {
    title: { text: title, standoff: 8, font: { size: 12.5, color: theme.quiet } },
    gridcolor: theme.grid, linecolor: theme.line, zeroline: false, ticks: '', automargin: true,
    tickfont: { size: 12, color: theme.quiet }, ...more,
  };
}

// Rounds, steps and clients are whole numbers, and so are their marks.
function wholeMarks(values) {
  const wanted = (Math.max(...values) - Math.min(0, ...values)) / (narrow.matches ? 4 : 7);
  const step = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].find((each) => each >= wanted) ?? Math.ceil(wanted);
  return { tickmode: 'linear', tick0: 0, dtick: step, tickformat: 'd' };
}

function roundAxis(theme, rounds, more = {}) {
  return axis(theme, 'round', { showgrid: false, hoverformat: 'd', ...wholeMarks([1, ...rounds]), ...more });
}

function layout(theme, more = {}) {
  return {
    paper_bgcolor: 'rgba(0,0,0,0)', plot_bgcolor: 'rgba(0,0,0,0)',
    font: { family: theme.font, size: 13, color: theme.ink },
    margin: { l: 48, r: 12, t: 36, b: 44 },
    dragmode: touch.matches ? false : 'zoom',
    hoverlabel: { bgcolor: theme.paper, bordercolor: theme.line, font: { color: theme.ink, size: 12.5 }, align: 'left', namelength: 40 },
    legend: { orientation: 'h', x: 0, y: 1.02, yanchor: 'bottom', itemclick: 'toggleothers', itemdoubleclick: 'toggle', font: { size: 12.5 } },
    modebar: { bgcolor: 'rgba(0,0,0,0)', color: theme.quiet, activecolor: theme.ink },
    ...more,
  };
}

function register(id, draw) {
  if (document.getElementById(id)) plots.set(id, draw);
}

async function show(id, theme = readTheme()) {
  const element = document.getElementById(id);
  const { traces, layout: form, buttons = [] } = plots.get(id)(theme, element);
  await Plotly.react(element, traces, form, {
    responsive: true, displayModeBar: hovers.matches ? 'hover' : false, displaylogo: false, showSendToCloud: false, scrollZoom: false, modeBarButtons: [['toImage', ...buttons]],
    plotGlPixelRatio: Math.min(2, devicePixelRatio), toImageButtonOptions: { format: 'svg', filename: 'ecgr-' + id.replace('plot-', '') },
  });
}

// One plot after another, with a breath between, so that the page can be read and scrolled meanwhile; the scene last,
// because it takes longest where there is no graphics card.
async function showAll() {
  const theme = readTheme();
  const order = [...plots.keys()].sort((a, b) => (a === 'plot-overview') - (b === 'plot-overview'));
  for (const id of order) {
    await show(id, theme);
    await new Promise((next) => setTimeout(next));
  }
}

function choices(id, labels, chosen) {
  const menu = document.getElementById(id);
  if (!menu) return null;
  menu.replaceChildren(...labels.map((label, number) => {
    const option = document.createElement('option');
    option.value = number;
    option.textContent = label;
    return option;
  }));
  if (chosen) menu.onchange = chosen;
  return menu;
}

function rowHeight(element, rows, each, rest) {
  element.style.height = `${rest + each * Math.max(1, rows)}px`;
}
