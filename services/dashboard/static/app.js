// What every page needs: relative times that stay true, filters that apply themselves, dialogs, and the notice.
"use strict";

const UNITS = [[60, "second"], [60, "minute"], [24, "hour"], [30, "day"], [12, "month"], [Infinity, "year"]];

/** The same words as the server's `ago`. */
function ago(moment, now) {
  const seconds = (now - moment) / 1000;
  let amount = Math.abs(seconds);
  if (amount < 5) return "just now";
  let unit = "";
  for (const [size, name] of UNITS) {
    unit = name;
    if (amount < size) break;
    amount /= size;
  }
  const whole = Math.floor(amount);
  const words = `${whole} ${unit}${whole === 1 ? "" : "s"}`;
  return seconds < -1 ? `in ${words}` : `${words} ago`;
}

function refreshTimes() {
  const now = Date.now();
  for (const time of document.querySelectorAll("time[datetime]")) {
    const words = ago(Date.parse(time.dateTime), now);
    if (time.textContent !== words) time.textContent = words;
  }
}
setInterval(refreshTimes, 15000);

document.addEventListener("change", (event) => {
  const form = event.target.closest("form[data-auto]");
  if (form) form.requestSubmit();
});

// Empty filters stay out of the address.
document.addEventListener("submit", (event) => {
  if (!event.target.matches("form[data-auto]")) return;
  for (const field of event.target.elements) if (field.name && !field.value) field.disabled = true;
});
addEventListener("pageshow", () => {
  for (const field of document.querySelectorAll("form[data-auto] :disabled")) field.disabled = false;
});

document.addEventListener("click", (event) => {
  const target = event.target;
  if (target.closest("[data-dismiss]")) document.getElementById("notice").className = "";
  if (target.closest("[data-close]")) target.closest("dialog").close();
  const opener = target.closest("[data-open]");
  if (opener) {
    const dialog = document.getElementById(opener.dataset.open);
    // A dialog that many rows share is about the one that opened it.
    if (opener.dataset.action) dialog.querySelector("form").action = opener.dataset.action;
    for (const named of dialog.querySelectorAll("[data-named]")) named.textContent = opener.dataset.name;
    dialog.showModal();
  }
  if (target instanceof HTMLDialogElement && target.id !== "drop") target.close();
});
