// Swagger UI on the OpenAPI document of this service, in the theme of the page. Cookies and tokens work as on /v1.
"use strict";
(() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const theme = () => root.classList.toggle("dark-mode", (root.dataset.theme || (system.matches ? "dark" : "light")) === "dark");
  new MutationObserver(theme).observe(root, { attributeFilter: ["data-theme"] });
  system.addEventListener("change", theme);
  theme();
  SwaggerUIBundle({
    // Deep links would put a link into the button that opens an operation.
    url: "/v1/openapi.json", domNode: document.querySelector("#swagger"), validatorUrl: null,
    docExpansion: "list", defaultModelsExpandDepth: 0, filter: true,
  });
})();
