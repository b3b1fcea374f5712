// Command chart makes the project's Helm chart out of config/, which stays the one truth: what the
// chart's defaults render is what kustomize makes of config/default. A table says which field of which
// object is a value of the chart; its default is what stands in that field.
package main
