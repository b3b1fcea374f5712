// Command chart creates the project's Helm chart from config/, the only source. With default values, the chart
// renders the same objects as kustomize renders from config/default. A table maps fields of objects to the chart's
// values. The default of a value is the field's content.
package main
