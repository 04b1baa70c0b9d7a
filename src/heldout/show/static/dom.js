// Finding and making elements. Text reaches the document only through textContent and attribute
// setters, never as markup.
const dom = (function () {
  "use strict";

  const all = (selector, within) => Array.from((within || document).querySelectorAll(selector));
  const one = (selector, within) => (within || document).querySelector(selector);

  function make(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name === "text") element.textContent = value;
      else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (value === true) element.setAttribute(name, "");
      else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
  }

  return { all, one, make };
})();
