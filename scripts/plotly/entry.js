// The parts of Plotly that the dashboards draw with: a third of the complete library. `make plotly` bundles them into
// service/dashboard/static/plotly.js. A chart that needs another trace or component adds it here.
const { register } = require("plotly.js/src/registry");
const api = require("plotly.js/src/plot_api");
const { version } = require("plotly.js/src/version");

require("plotly.js/build/plotcss");
for (const [name, fn] of Object.entries(api)) register({ moduleType: "apiMethod", name, fn });
register([
  require("plotly.js/src/traces/scatter"),
  require("plotly.js/src/traces/bar"),
  require("plotly.js/src/components/annotations"),
  require("plotly.js/src/components/selections"),
  require("plotly.js/src/components/shapes"),
  require("plotly.js/src/components/errorbars"),
  require("plotly.js/src/components/colorscale"),
  require("plotly.js/src/components/legend"), // after shapes, whose entries it shows
  require("plotly.js/src/components/fx"), // after the legend
  require("plotly.js/src/components/modebar"),
  require("plotly.js/src/locale-en"),
  require("plotly.js/src/locale-en-us"),
]);

module.exports = { ...api, register, version };
